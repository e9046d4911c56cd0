"""Deciding by several people: whose words count, and how far a case has come. `approvals` alone comes in."""
