"""What time brings to questions, and what people set of it: calendars, deadlines, absences. The faces come in, and the
sweeper by its hooks."""
