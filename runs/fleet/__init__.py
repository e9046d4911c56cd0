"""Processes, agent versions and recoveries of the fleet. Any code may read them; only workers write."""
