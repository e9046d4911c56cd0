"""The tables of what people are told: models alone, for the room that tells (approvals/notices/) and for the app."""
