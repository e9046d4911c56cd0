"""Recorded visits in files and their replay: for `checkpoints export`, `runs to-test`, `durableagents.testing`.
Pure."""
