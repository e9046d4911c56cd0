"""What operators do about workers and hosts, and about a run that its worker seems to be stuck with."""
