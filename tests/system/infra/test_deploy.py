"""The files in deploy/ pass their own tools."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT

UNITS = CHECKOUT / "deploy" / "systemd"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on PATH")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    python = str(Path(sys.executable).absolute())
    for unit in UNITS.iterdir():
        text = unit.read_text().replace("/opt/durableagents/.venv/bin/python", python)
        (tmp_path / unit.name).write_text(
            text.replace("/opt/durableagents", str(CHECKOUT)).replace("User=durableagents\n", "")
        )
    units = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=60)
    about = [line for line in done.stderr.splitlines() if "durableagents" in line]
    assert len(units) == 3 and (done.returncode, about) == (0, []), done.stderr


def test_the_units_start_commands_that_exist() -> None:
    for unit in UNITS.glob("*.service"):
        (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
        command = line.split("manage.py ")[1].split()
        done = subprocess.run(
            [sys.executable, "manage.py", command[0], "--help"],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0 and all(option in done.stdout for option in command[1:] if option[0] == "-"), unit
