"""Starts that are more than an input: under a key of the caller's business, at a time, many at once. Known to the
faces, the workers and what starts by schedule."""
