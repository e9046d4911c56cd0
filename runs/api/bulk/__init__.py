"""Acts on many runs, over HTTP."""
