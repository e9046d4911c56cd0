"""A recorded visit in a file, and whether code would do again what it did: what `checkpoints export`, `runs to-test`
and `durableagents.testing` share. Pure."""
