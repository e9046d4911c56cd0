"""Forks over HTTP: where a run can be begun again, what would happen again, and doing it."""
