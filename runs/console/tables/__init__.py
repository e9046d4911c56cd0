"""Tables of texts for states, waits, events and timeline rows. Tests check that they are complete."""
