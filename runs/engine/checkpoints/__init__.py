"""Checkpoints of runs: their position, upgrades of their states, and checks of the code that wrote them."""
