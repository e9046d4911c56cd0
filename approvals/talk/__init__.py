"""What was asked about cases, and to whom they were handed: the rows, and how they are shown. What people do about that
is in `approvals/consulting`."""
