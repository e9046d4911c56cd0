"""Reading runs for files: which checkpoints stand for all of them, what is on record of each, and the folder."""
