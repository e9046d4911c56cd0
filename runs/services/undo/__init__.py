"""What becomes of a run's effects when it ends before its time: what would be undone, and who says so."""
