"""Recorded visits in files, and their replay, for commands and `durableagents.testing`. Pure."""
