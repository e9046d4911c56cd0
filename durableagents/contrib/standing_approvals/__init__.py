"""Standing approvals: a decision that also approves later identical calls. See README.md."""
