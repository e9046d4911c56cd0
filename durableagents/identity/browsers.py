"""Readable names of browsers."""

# Browsers also name others in their user agent, so the first match counts.
_BROWSERS = [
    *(("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", "Firefox"), ("FxiOS", "Firefox"), ("CriOS", "Chrome")),
    *(("Chrome", "Chrome"), ("Safari", "Safari"), ("curl", "curl"), ("ython", "a Python program")),
]
_SYSTEMS = [
    *(("Windows", "Windows"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("CrOS", "ChromeOS")),
    *(("Mac OS X", "macOS"), ("Linux", "Linux")),
]


def browser_of(name: str) -> str:
    """Return a readable name of the browser, such as `Firefox on Linux`."""
    browser = next((word for mark, word in _BROWSERS if mark in name), "an unknown browser")
    system = next((word for mark, word in _SYSTEMS if mark in name), "")
    return f"{browser} on {system}" if system else browser
