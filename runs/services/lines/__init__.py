"""Runs that do the same work, since they were begun again from one another."""
