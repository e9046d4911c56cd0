"""Shared budgets (pools): settings (`acts`) and runs that wait for them (`waiting`)."""
