"""The protocol number stands for everything that releases must agree on to share one database.

A release raises it if it adds a kind or field of events, changes how something is derived (such as an idempotency key),
or changes the database. A process drives runs of its own protocol and of every older one. It runs on a database of its
own protocol or of the next one, so that a release can replace the previous one without an outage. Derived values stay
the same for a run's whole life: its first event names the protocol of the code that started it.
"""

# 1: the first. 2: runs name their protocol, and a worker's claim takes only runs of protocols that it knows;
# idempotency keys and callback tokens are derived with a secret; checkpoints that can't be used are recorded.
PROTOCOL = 2
SECRET_KEYS = SKIPPED_CHECKPOINTS = 2  # the first protocol that has these
