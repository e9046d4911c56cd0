"""Processes, agent versions and recoveries of the fleet. Anybody may read; only workers write."""
