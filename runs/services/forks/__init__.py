"""Forks of a run, and new runs from its input; the requester reviews its effects first."""
