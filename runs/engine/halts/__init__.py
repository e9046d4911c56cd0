"""What a halt keeps from leaving: the port (`leaving`). Whoever drives comes in."""
