"""Calendars and queue timings, as rows and for the engine's arithmetic. Knows only the queues' rows of approvals."""
