"""Migration of runs to another version of their agent: preview and act."""
