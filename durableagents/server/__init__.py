"""The web process: connections, limits, one thread per request, health."""
