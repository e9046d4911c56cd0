"""Name the actor of changes to accounts to the database, signed for one transaction.

Triggers write the records of what was done to accounts (`durableagents/sql`) and take the actor from the setting
`durableagents.actor`. Any SQL may set it, so it carries a code under the installation's key, for this transaction
alone: `tx` is its number and when the server was started. The trigger keeps the code with the record and verification
checks it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from ledger.actors import Actor
from ledger.codes import row_code
from ledger.keys import code_key

TABLE = "actor"
# The actor of what the application does for nobody in particular, as the trigger has it.
DATABASE = "database"
_SAY = "SELECT set_config('durableagents.actor', %s, true)"
# The transaction and this run of the server, as the trigger has them: a signature is good in no other one.
_TX = "pg_current_xact_id()::text || '@' || (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
_NOW = f"SELECT coalesce(current_setting('durableagents.actor', true), ''), {_TX}, session_user"
_FORGET = """SELECT set_config('durableagents.actor', '', true)
    WHERE nullif(current_setting('durableagents.actor', true), '')::jsonb ->> 'auth' = %s"""


@contextmanager
def acting(by: Actor, reason: str = "") -> Iterator[None]:
    """Put what is done to accounts inside on record as this actor's, with the reason where one is given. One
    transaction: what fails has changed nothing."""
    actor = {"by": by.ref, "person": by.person, "auth": by.auth, "address": by.address}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_NOW)
        before, tx, _ = cursor.fetchone()
        cursor.execute(_SAY, [_signed(actor | ({"reason": reason} if reason else {}), tx)])
        yield
        cursor.execute(_SAY, [before])  # a transaction around this one goes on as before


def sign_if_nobody_acts() -> None:
    """Sign for a change that the application makes in nobody's name: at a shell, or when it sets itself up."""
    with connection.cursor() as cursor:
        cursor.execute(_NOW)
        before, tx, role = cursor.fetchone()
        if not before:
            actor = {"by": f"{DATABASE}:{role}", "person": None, "auth": DATABASE, "address": ""}
            cursor.execute(_SAY, [_signed(actor, tx)])


def end_unnamed_actor() -> None:
    """End what `sign_if_nobody_acts` began. A named actor stays."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, [DATABASE])


def _signed(actor: dict[str, Any], tx: str) -> str:
    code = row_code(code_key(), TABLE, actor | {"tx": tx})
    return json.dumps(actor | {"code": code.hex()})
