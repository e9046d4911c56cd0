"""What the journals of forks and their origins say of each other."""
