"""The calls of a node, one module per kind of step. Used by the context and the driver. Tool calls are in call.py."""
