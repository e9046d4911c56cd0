"""Search of runs by attributes; console, API and commands use `search`."""
