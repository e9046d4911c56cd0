"""The outside systems: the fields of their requests, and the changes that these make."""
