"""Approvals and the audit over HTTP. Nobody imports from here but the address table."""
