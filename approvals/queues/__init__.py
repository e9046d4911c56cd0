"""Queues as data: who decides where, their limits, and deputies."""
