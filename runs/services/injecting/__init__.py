"""What operators hand to a run with the act that lets it go on: a patch of its state, or a message for the models that
its node asks."""
