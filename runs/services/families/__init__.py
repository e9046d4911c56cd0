"""Parent and child runs: reporting a child's end, and passing on a parent's pause or cancel."""
