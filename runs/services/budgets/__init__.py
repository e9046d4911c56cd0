"""Run budgets: setting them at the start, raising them, and handling their deadlines."""
