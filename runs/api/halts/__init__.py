"""Halts over HTTP."""
