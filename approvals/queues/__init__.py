"""Queues in the database: who may decide in each, people's limits, and deputies."""
