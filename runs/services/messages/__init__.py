"""What is said to a run and wants an answer (`sending`), how long somebody waits for one (`waiting`), and what a run's
recorded state says (`recorded`, `reading`). The faces come in here; same rules as `runs/services/command.py`."""
