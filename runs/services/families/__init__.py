"""Runs that are steps of others: what a child's end is to its parent, and the parent's pause or cancel to it."""
