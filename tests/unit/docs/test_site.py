"""The site builds without a broken link, and its pages load nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.unit.docs.pages import ROOT

_LOADED = re.compile(r'<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)="((?:https?:)?//[^"]+)"')


def test_the_site_builds_and_needs_no_other_host(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, "\n".join(line for line in done.stderr.splitlines() if "WARNING" in line)
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 50 and (tmp_path / "search/search_index.json").exists()
    assert {found for page in pages for found in _LOADED.findall(page.read_text())} == set()
    named = re.findall(r"\]\(([\w/.-]+)\)", (ROOT / "docs/llms.txt").read_text())
    assert [name for name in named if not (tmp_path / name).exists()] == [], "llms.txt names pages that aren't there"
