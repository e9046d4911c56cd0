"""The master key of every test run, and of the dump that upgrades start from.

A database that is used again (`--reuse-db`) has rows with codes under it.
"""

MASTER_KEY = "the-master-key-of-the-dumped-installation-0123"
