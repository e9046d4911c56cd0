"""Acts on many runs, as pages: what would become of it, how far it has come."""
