"""Budgets that many runs share: who sets them, who waits for them, and what is told of them. Known to the faces and the
workers."""
