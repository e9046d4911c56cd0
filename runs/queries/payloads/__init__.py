"""What of a run's payloads somebody reads. For the faces, here and in approvals."""
