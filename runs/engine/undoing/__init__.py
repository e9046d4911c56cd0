"""Undoing a run's effects before it ends: the plan, the visit that executes it, and the end of the run after it."""
