"""`python -m tests.system.browser.icons`: draw the icons of the installed page from `static/img/mark.svg`."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.system.browser.conftest import FLAGS

IMAGES = Path(__file__).resolve().parents[3] / "static" / "img"
GROUND = "#2257d6"  # the mark's own colour
SIZES = (192, 512)
# A maskable icon may be cut to a circle of four fifths of its width, so the mark is inside it.
KINDS = {"icon": ("transparent", 1.0), "icon-maskable": (GROUND, 0.72)}


def drawn(size: int, ground: str, share: float) -> str:
    mark = base64.b64encode((IMAGES / "mark.svg").read_bytes()).decode()
    inner = round(size * share)
    return (
        f'<body style="margin:0;width:{size}px;height:{size}px;display:grid;place-items:center;background:{ground}">'
        f'<img width="{inner}" height="{inner}" src="data:image/svg+xml;base64,{mark}">'
    )


def main(chromium: str = "/usr/bin/chromium") -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, (ground, share) in KINDS.items():
            for size in SIZES:
                page = browser.new_page(viewport={"width": size, "height": size})
                page.set_content(drawn(size, ground, share))
                page.screenshot(path=IMAGES / f"{name}-{size}.png", omit_background=True)
                page.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
