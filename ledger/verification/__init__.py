"""Whether the record is what was written: of a run, of all, and of what belongs to none."""
