"""Over HTTP: moving runs to another version of their agent, and what would become of each."""
