"""The protocol number, the version of everything that releases must agree on to share one database.

A release increments it when it adds a kind or field of events, changes how a value is derived (such as an idempotency
key), or changes the database. A process drives runs of its own protocol and of every older one. It works with a
database of its own protocol or of the next one, so that a release can replace the previous one without an outage. A
run's derived values never change: its first event names the protocol of the code that started it, and later releases
derive them by that protocol.
"""

# 1: the first. 2: runs name their protocol, and a worker's claim takes only runs of protocols that it knows;
# idempotency keys and callback tokens are derived with a secret; checkpoints that can't be used are recorded.
PROTOCOL = 2
SECRET_KEYS = SKIPPED_CHECKPOINTS = 2  # the first protocol that has these
