"""The pages of notices: what one is told oneself, the log, and the channels."""
