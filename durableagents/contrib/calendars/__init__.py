"""Business hours, reminders, escalation, absences and deputies."""
