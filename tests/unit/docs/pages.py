"""The documentation as text: blocks, links and table rows, for tests that compare it with the code."""

from __future__ import annotations

import linecache
import re
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block. `sh` is pasted by readers and run by the tests; `console` shows a session and isn't run."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 1) for found in _BLOCK.finditer(text)]


def links(page: Path) -> list[str]:
    targets = _LINK.findall(_CODE.sub("", page.read_text()))
    return [target for target in targets if "://" not in target]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(_BLOCK, "", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(page: Path) -> list[list[str]]:
    lines = [line for line in page.read_text().splitlines() if line.startswith("|") and not line.startswith("|--")]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]


def misfit(shown: Any, real: Any, path: str = "") -> str | None:
    """Return how a documented answer differs from a real one in types and first rows; `…` matches anything."""
    if shown == "…":
        return None
    if isinstance(shown, dict) and isinstance(real, dict):
        missing = shown.keys() - real.keys() - {"…"}
        more = set() if "…" in shown else real.keys() - shown.keys()
        if missing or more:
            return f"{path or '.'}: not in the answer {sorted(missing)}, not in the page {sorted(more)}"
        return next(
            (answer for name in shown.keys() - {"…"} if (answer := misfit(shown[name], real[name], f"{path}.{name}"))),
            None,
        )
    if isinstance(shown, list) and isinstance(real, list):
        if len([row for row in shown if row != "…"]) > len(real):
            return f"{path}: the page shows more rows than the {len(real)} there are"
        pairs = zip(shown, real, strict=False)
        return next((answer for i, (a, b) in enumerate(pairs) if (answer := misfit(a, b, f"{path}.{i}"))), None)
    return None if type(shown) is type(real) else f"{path}: {shown!r} in the page, {real!r} in the answer"


def run_python(page: Path, names: dict[str, Any] | None = None) -> list[str]:
    """Run a page's Python blocks from top to bottom, and return what a `text` block after one shows wrongly."""
    module = ModuleType(f"guide_{page.stem}".replace("-", "_"))
    module.__dict__.update(names or {})
    linecache.cache[str(page)] = (1, None, page.read_text().splitlines(True), str(page))
    sys.modules[module.__name__] = module
    found, wrong = blocks(page), []
    try:
        for block, following in zip(found, [*found[1:], None], strict=True):
            if block.language != "python":
                continue
            with redirect_stdout(StringIO()) as printed:
                exec(compile("\n" * block.line + block.text, str(page), "exec", dont_inherit=True), module.__dict__)
            shown = following.text if following and following.language == "text" else ""
            if shown.strip() != printed.getvalue().strip():
                wrong.append(f"{page.name}:{block.line} prints\n{printed.getvalue()}")
    finally:
        del sys.modules[module.__name__], linecache.cache[str(page)]
    return wrong
