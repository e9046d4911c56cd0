"""Moving runs to another version of their agent, on a page of its own."""
