"""What a gate says of the call that it holds. Tools and gates come in."""
