"""Limits, breakers and shares, which all workers have in common."""
