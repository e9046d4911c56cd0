"""The loop of model and tools: requests, the choice of models, and the compaction of conversations."""
