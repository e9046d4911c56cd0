"""What a checkpoint tells of the code that wrote it."""
