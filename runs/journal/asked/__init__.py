"""Current queues, policies and starters of runs, cached per process."""
