"""Live output of models.
It is shown while a page is open. It is never journaled, nothing depends on it, and it is lost with the worker. Workers
use `texts`; pages use `reading` and `ears`."""
