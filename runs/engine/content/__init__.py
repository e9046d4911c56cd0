"""Hooks that check content before it reaches a model, a tool or a node. Pure; any module may import them."""
