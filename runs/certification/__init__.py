"""Certification of keyed tools: probes of whether the upstream system honours idempotency keys, their results, and
what workers know of them."""
