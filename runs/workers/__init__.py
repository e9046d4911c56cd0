"""The processes that drive runs: loop, process, supervisor, failure detector and failover, timers. Nobody imports
from here but their commands."""
