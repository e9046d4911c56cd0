"""Standing approvals. See README.md."""
