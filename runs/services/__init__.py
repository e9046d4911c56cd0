"""State changes requested by people or other systems: one function, one transaction each."""
