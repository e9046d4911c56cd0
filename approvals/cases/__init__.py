"""Acts on a case before its decision: amend, ask, read, delegate."""
