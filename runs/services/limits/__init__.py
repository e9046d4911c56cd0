"""Limits, circuit breakers and shares across all workers: settings (`acts`) and permits (`permits`)."""
