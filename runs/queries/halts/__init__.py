"""What is halted: which halt a run is under (`of_runs`), and how the halts themselves stand (`standing`)."""
