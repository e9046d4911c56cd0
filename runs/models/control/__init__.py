"""What is done to many runs at once: halts, acts on many, and which policies are in force. Known as `runs.models`."""
