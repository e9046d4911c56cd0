"""Live model output: shown while a page is open, never journaled or relied on, gone with the worker. Workers use
`texts`; pages use `reading` and `ears`."""
