"""The loop of model and tools: requests, routing to models, and compaction of conversations."""
