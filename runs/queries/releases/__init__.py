"""Releases as people see them: runs per version, when the last of a version may end, and how ramps stand."""
