"""A node's calls, one module per kind of step; `call.py` is the main protocol. Used by the context and the driver."""
