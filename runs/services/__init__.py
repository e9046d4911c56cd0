"""State changes requested by people or other systems. Each is one function and one transaction."""
