"""Standing approvals: decisions that also approve later identical calls. See README.md."""
