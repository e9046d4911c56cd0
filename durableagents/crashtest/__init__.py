"""An integrator's own agent, killed at every crash point of every tool on a private stack, and judged by what was done
outside. For the command `crashtest` alone."""
