"""Recorded visits and their replay. Pure."""
