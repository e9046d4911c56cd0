"""What a model is saying right now, before it is on record: shown while somebody looks, never journaled, never relied
on, gone with the worker. The worker comes in by `texts`, whoever shows it by `reading` and `ears`."""
