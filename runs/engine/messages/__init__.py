"""What is said to a run while it is under way, and what it says of itself: messages with an answer, views. Pure.
Nobody but the engine's own modules, the services behind messages and views, and the faces' forms come in here."""
