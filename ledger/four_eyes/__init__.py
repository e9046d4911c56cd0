"""Two-person approval of rule changes: one person proposes a change, a second puts it in force."""
