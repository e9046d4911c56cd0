"""The app of docs/how-to/write-a-contrib-app.md, made from the page's blocks, works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import plain_env
from tests.unit.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "write-a-contrib-app.md"


def test_the_app_of_the_page_passes_its_test_and_the_checks(tmp_path: Path) -> None:
    for block in blocks(PAGE):
        file = tmp_path / block.text.partition("\n")[0].removeprefix("# ")
        file.parent.mkdir(exist_ok=True)
        file.write_text(block.text)
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    environment = plain_env(tmp_path / "data") | {"PYTHONPATH": paths}
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_night.py"]
    for command in (pytest, [sys.executable, str(ROOT / "manage.py"), "check"]):
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment | {"DJANGO_SETTINGS_MODULE": "my_settings"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
