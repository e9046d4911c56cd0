"""Starts that are more than an input, as pages ask for them: when one begins, and by which clock. Known to the start
page and to the addresses."""
