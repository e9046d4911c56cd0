"""The dump that upgrades start from, and the master key of the installation that it was made of."""

from pathlib import Path

DUMP = Path(__file__).parent / "dumps" / "0.1.0.sql.gz"
MASTER_KEY = "the-master-key-of-the-dumped-installation-0123"
