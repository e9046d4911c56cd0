"""The processes that drive runs: loop, process, supervisor, watchdog, timers. Nobody imports from here but their
commands."""
