"""The dump that upgrades start from: of an installation with the master key of the tests."""

from pathlib import Path

DUMP = Path(__file__).parent / "dumps" / "0.1.0.sql.gz"
