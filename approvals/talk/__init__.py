"""Inquiries and delegations: rows and display. `approvals/consulting` has the acts."""
