"""What all workers share: limits, circuit breakers, shares. What is said of them and by whom, and a worker's permits.
Known to the faces and the workers."""
