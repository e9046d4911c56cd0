"""Runs that go on as others: who is the newest of them, and what is sent to one that has gone on."""
