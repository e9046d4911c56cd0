"""Hooks that look at content before it reaches a model, a tool or a node: what they see, what they may say, which ship.
Pure data and functions; anybody may come in."""
