"""What a run waits for, as the API tells it."""
