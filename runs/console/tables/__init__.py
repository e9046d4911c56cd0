"""What is data about a state, a wait, an event or a row of the timeline: one table each, complete by test."""
