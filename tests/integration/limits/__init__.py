"""What all workers share: limits, breakers, shares."""
