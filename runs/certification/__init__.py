"""Which keyed tools' other sides were seen to honour keys: probes, what they found, and what a worker knows of it. For
the console, the API, the workers and the commands."""
