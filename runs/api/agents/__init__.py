"""What the API tells of agents beside their graphs. For the API alone."""
