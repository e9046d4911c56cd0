"""Pure: what is known of a keyed tool's other side, and the port by which the engine asks. For the engine, and for
runs/certification, which finds it out."""
