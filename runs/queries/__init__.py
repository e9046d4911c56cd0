"""Read models: lists of runs, and the status of a run.
Used by the console and the API, never by workers."""
