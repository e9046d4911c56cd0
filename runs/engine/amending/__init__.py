"""What becomes of a call whose arguments a person changed. Gates, calls and the service of `approvals` may come in."""
