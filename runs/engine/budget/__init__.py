"""What a run may use, what it has used, and what is set aside for calls under way. Pure."""
