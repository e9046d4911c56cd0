"""Standing approvals: give, use, take back and verify them."""
