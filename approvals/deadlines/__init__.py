"""Deadlines, calendars and absences: what time does to questions, and what people set. The sweeper uses its hooks."""
