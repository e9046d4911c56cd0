"""What people say about how a run thinks."""
