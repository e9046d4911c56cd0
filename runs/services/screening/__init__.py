"""The hooks that the installation names. Workers and the start of a process come in."""
