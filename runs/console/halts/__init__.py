"""The pages about halts."""
