"""The dump that upgrades start from, of an installation with the tests' master key."""

from pathlib import Path

DUMP = Path(__file__).parent / "dumps" / "0.1.0.sql.gz"
