"""The dump that upgrades start from, of an installation with the tests' master key."""

from pathlib import Path

DUMP = Path(__file__).parent / "dumps" / "0.1.0.sql.gz"
# The commit of the last release: workers of it and of today's code have to drive one database together.
RELEASE = Path(__file__).parent / "RELEASE"
