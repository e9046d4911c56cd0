"""Crash tests of agents: kill workers at each crash point on a private stack, and compare the effects."""
