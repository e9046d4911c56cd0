"""The master key of every test run and of the upgrade dump: reused databases (`--reuse-db`) have rows coded with it."""

MASTER_KEY = "the-master-key-of-the-dumped-installation-0123"
