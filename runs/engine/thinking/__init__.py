"""How a run thinks: the loop of model and tools, one request and whom it goes to, and how a conversation is kept short
enough."""
