"""The web process: its door, its limits, one thread a request, its health."""
