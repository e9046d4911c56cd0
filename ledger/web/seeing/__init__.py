"""Viewers, and what they may see."""
