"""Run budgets: set at the start, raised by people, enforced at their deadlines."""
