"""What all workers share, as pages show it. Known to the addresses."""
