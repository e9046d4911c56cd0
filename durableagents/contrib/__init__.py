"""Features as Django apps, each removable."""
