"""Live model output.
Live output of models: it is shown while a page is open, never journaled or relied on, and lost with the worker. Workers
use `texts`; pages use `reading` and `ears`."""
