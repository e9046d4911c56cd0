"""Whom runs ask: the queues that there are now. Whoever shows or judges who may act comes in, and workers."""
