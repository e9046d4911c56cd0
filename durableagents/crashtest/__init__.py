"""Crash tests of an integrator's agent: kill its workers at every crash point on a private stack, and compare the
outside effects. For the command `crashtest` only."""
