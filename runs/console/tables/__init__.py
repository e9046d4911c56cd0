"""Tables of texts for states, waits, events and timeline rows; tests check that they are complete."""
