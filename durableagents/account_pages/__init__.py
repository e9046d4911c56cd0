"""Account pages: one's own, everybody's for administrators, and those without sign-in."""
