"""Checkpoints: position, upgrading, and the code that wrote them."""
