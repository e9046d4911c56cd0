"""What a start says besides its input, as pages show it and as they ask for it. Known to the start page alone."""
