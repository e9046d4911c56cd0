"""Halts: who sets and lifts them (`acts`, `bodies`), what a worker knows of them (`known`), and what they do to
deadlines (`standing`)."""
