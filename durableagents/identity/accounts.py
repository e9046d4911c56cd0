"""Say who changes accounts, and hash passwords.

Triggers write the record of every change (durableagents/sql/accounts.sql), so that nothing passes it by. They take the
actor from the transaction, where `acting` puts it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.auth.hashers import Argon2PasswordHasher
from django.db import connection, transaction

from ledger.actors import Actor

_SAY = "SELECT set_config('durableagents.actor', %s, true)"


@contextmanager
def acting(by: Actor, reason: str = "") -> Iterator[None]:
    """What is done to accounts inside is on record as this actor's, of second factors and ways to sign in with the
    reason. One transaction: what fails has changed nothing."""
    said = {"by": by.ref, "person": by.person, "auth": by.auth, "address": by.address}
    actor = json.dumps({**said, "reason": reason} if reason else said)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('durableagents.actor', true)")
        before = cursor.fetchone()[0] or ""
        cursor.execute(_SAY, [actor])
        yield
        cursor.execute(_SAY, [before])  # a transaction around this one goes on as whoever it was


class Argon2(Argon2PasswordHasher):
    """Argon2id with the memory that OWASP's password storage cheat sheet asks for: Django's 100 MiB a try would be a
    way to fill the machine."""

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1
