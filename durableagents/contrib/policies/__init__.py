"""Policies. See README.md."""
