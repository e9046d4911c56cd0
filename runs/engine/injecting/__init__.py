"""What an operator may hand to a run that they let go on: where it stands, what a patch makes of its state. Pure."""
