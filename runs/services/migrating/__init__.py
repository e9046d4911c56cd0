"""Moving runs to another version of their agent: a look at what would become of each, and the act."""
