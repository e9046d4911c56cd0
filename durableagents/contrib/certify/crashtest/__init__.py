"""Crash tests of agents: workers are killed at each crash point on a private stack, and the effects compared."""
