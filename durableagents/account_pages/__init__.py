"""The pages of accounts: one's own, everybody's for administrators, and the doors for whoever isn't signed in."""
