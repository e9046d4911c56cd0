"""Read models: lists of runs, and a run's status in one word.
Used by the console and the API, never by workers."""
