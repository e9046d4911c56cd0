"""Over HTTP: what would become of a run that something is handed to."""
