"""A run that goes on as another one: with an empty journal (a renewal), or as another agent's (a handoff)."""
