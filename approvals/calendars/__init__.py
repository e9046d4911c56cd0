"""Calendars and what queues say of time, as rows and as the engine counts with them. Whoever in approvals asks comes
in; it knows the queues' rows and nothing else of approvals."""
