"""Exporting runs to files: selecting checkpoints, reading visits, and writing the folder."""
