"""Finding runs by their attributes: the language, what its names mean, and how it is answered by index. Console, API
and commands come in by `search`."""
