"""Make the dump that upgrades start from: `python -m tests.system.upgrade.make`."""

from pathlib import Path

import pytest

raise SystemExit(pytest.main(["-q", str(Path(__file__).with_name("record.py"))]))
