"""The outside systems, one module each: what a request must say, and what it changes."""
