"""What a node's calls do, one file per kind of step; `call.py` is the protocol itself. Only the context and the driver
come in."""
