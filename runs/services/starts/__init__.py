"""Starts with a business key or a start time: rules (`keys`) and queues (`turns`)."""
