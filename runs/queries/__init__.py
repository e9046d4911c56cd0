"""Reading many runs: what lists show and how a run looks in one word. Faces come in, and workers never."""
