"""Inquiries and delegations: before deciding, ask somebody about a case or hand it to them."""
