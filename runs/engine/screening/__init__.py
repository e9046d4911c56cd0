"""What hooks said of content, put on record and in place. `steps` and `thinking` come in."""
