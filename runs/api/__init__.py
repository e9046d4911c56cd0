"""Runs over HTTP. Nobody imports from here but the address table."""
