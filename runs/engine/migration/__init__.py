"""What a version declares of runs that are moved to it from an earlier one."""
