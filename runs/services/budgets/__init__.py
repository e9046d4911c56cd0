"""What a run may use: set at its start, raised by people, and what becomes of it when nobody does."""
