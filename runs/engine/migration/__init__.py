"""What a version declares of runs that are moved to it from an earlier one, and how what is stored in an older format
is read."""
