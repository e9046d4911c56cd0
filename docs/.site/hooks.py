"""MkDocs hooks: the READMEs of the apps and of the repository become pages of the site; other files lose their link."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def _outside() -> dict[str, str]:
    """Return the site's name of each page that is kept outside docs/, by its path in the repository."""
    apps = {
        str(page.relative_to(ROOT)): f"apps/{page.parent.name}.md"
        for page in sorted((ROOT / "durableagents/contrib").glob("*/README.md"))
    }
    root = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
    return apps | {name: f"project/{name.lower()}" for name in root}


PAGES = _outside()


def on_config(config: Any) -> Any:
    """List the added pages in the navigation."""
    apps = [name for name in PAGES.values() if name.startswith("apps/")]
    config.nav = [*config.nav, {"Apps": apps}, {"Project": [name for name in PAGES.values() if name not in apps]}]
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages, with links that fit their new places."""
    for source, name in PAGES.items():
        files.append(File.generated(config, name, content=_moved((ROOT / source).read_text(), source, name)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Repair links that leave docs/."""
    name = page.file.src_uri
    return markdown if name in PAGES.values() else _moved(markdown, f"docs/{name}", name)


def _moved(text: str, source: str, name: str) -> str:
    """Return `text` of the file `source` as the page `name`. Code blocks stay as they are."""
    done, parts = 0, []
    for code in _FENCE.finditer(text):
        parts += [_with_links(text[done : code.start()], source, name), code[0]]
        done = code.end()
    return "".join([*parts, _with_links(text[done:], source, name)])


def _with_links(text: str, source: str, name: str) -> str:
    def repaired(found: re.Match[str]) -> str:
        mark, label, target = found.groups()
        path, hash_, anchor = target.partition("#")
        if "://" in target or not path:
            return found[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        page = (
            PAGES.get(file)
            or PAGES.get(f"{file}/README.md")
            or (file.removeprefix("docs/") if file.startswith("docs/") else "")
        )
        if not page:
            return found[0] if not (ROOT / file).exists() else f"`{file}`" if label.startswith("`") else label
        return f"{mark}[{label}]({posixpath.relpath(page, posixpath.dirname(name) or '.')}{hash_}{anchor})"

    return _LINK.sub(repaired, text)


def on_post_build(config: Any) -> None:
    """Add each page's Markdown, which llms.txt links to."""
    docs, site = Path(config.docs_dir), Path(config.site_dir)
    for page in docs.rglob("*.md"):
        (site / page.relative_to(docs)).write_text(page.read_text())
