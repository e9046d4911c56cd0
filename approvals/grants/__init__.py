"""Standing grants as rows, and how far they may go. What is done with them: approvals/granting."""
