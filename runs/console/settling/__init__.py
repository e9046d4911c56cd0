"""Settling an unknown outcome in the console: its forms."""
