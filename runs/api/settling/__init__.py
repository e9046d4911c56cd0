"""Settling an unknown outcome over the API."""
