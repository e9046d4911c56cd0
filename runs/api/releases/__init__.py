"""Releases over HTTP: an agent's versions, and ramps between two of them."""
