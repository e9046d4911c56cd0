"""Templates hold readable markup; what `ledger` renders needs no app above it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import CHECKOUT

ROOT = CHECKOUT / "templates"
SANDBOX = CHECKOUT / "durableagents/demo/sandbox/web/templates"
MAX_FILES, MAX_LINE_LENGTH = 160, 160
# Django's own, and those of `ledger`.
LOW_LIBRARIES = {"static", "console"}
_NAMED = re.compile(r"[\"']([\w/]+\.html)[\"']")
_BLOCKS = re.compile(r"\{%\s*(?:load|extends)[^%]*%\}|\{#.*?#\}|\{%\s*(?:end)?block\b[^%]*%\}")


def templates() -> list[Path]:
    return sorted(ROOT.rglob("*.html"))


def test_no_line_of_a_template_is_longer_than_a_screen() -> None:
    sandbox = sorted(SANDBOX.iterdir())
    assert sandbox
    found = {
        f"{path.relative_to(CHECKOUT)}:{number}": len(line)
        for path in [*templates(), *sandbox]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MAX_LINE_LENGTH
    }
    assert found == {}


def test_what_is_data_is_no_template() -> None:
    """A one-line file with only text, or a word in a span, belongs in a table."""
    assert 0 < len(templates()) <= MAX_FILES
    small = {str(path.relative_to(ROOT)): _BLOCKS.sub("", path.read_text()).strip() for path in templates()}
    data = {name for name, text in small.items() if "\n" not in text and len(re.findall(r"<\w", text)) < 2}
    assert data == set()


def needs(name: str, seen: set[str]) -> set[str]:
    if name in seen:
        return set()
    seen.add(name)
    text = (ROOT / name).read_text()
    found = {library for words in re.findall(r"\{%\s*load ([^%]*)%\}", text) for library in words.split()}
    for words in re.findall(r"\{%\s*(?:include|extends) ([^%]*)%\}", text):
        for other in _NAMED.findall(words):
            found |= needs(other, seen)
    return found


def test_what_the_common_ground_renders_loads_nothing_of_the_apps_above_it() -> None:
    named = {name for path in (CHECKOUT / "ledger").rglob("*.py") for name in _NAMED.findall(path.read_text())} & {
        str(path.relative_to(ROOT)) for path in templates()
    }
    assert {"layouts/page.html", "layouts/live.html", "errors/403.html"} <= named
    assert {name: extra for name in named if (extra := needs(name, set()) - LOW_LIBRARIES)} == {}


# On every page, whatever apps exist: the account menu.
MENU = {"overview", "account", "people", "setup", "notifications", "logout", "demo_login"}


def test_the_layouts_name_no_section_of_the_apps() -> None:
    for path in (ROOT / "layouts").glob("*.html"):
        places = set(re.findall(r"\{%\s*url '(\w+)'", path.read_text()))
        assert places <= MENU, path
