"""Inquiries and delegations: before deciding, ask someone about a case or hand it to them."""
