"""Tell the database who is changing accounts.

The variable that names the actor is signed and valid for one transaction, because any SQL can set it.
"""

# The code covers `tx`: the transaction's number and the server's start time. The triggers store it with the record, and
# verification checks it.

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
# The actor that the trigger records for changes that the application makes on its own.
DATABASE = "database"
_SAY = "SELECT set_config('durableagents.actor', %s, true)"
# The transaction and the server's start, as the trigger computes them: a signature is valid in no other transaction.
_TX = "pg_current_xact_id()::text || '@' || (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
_NOW = f"SELECT coalesce(current_setting('durableagents.actor', true), ''), {_TX}, session_user"
_FORGET = """SELECT set_config('durableagents.actor', '', true)
    WHERE nullif(current_setting('durableagents.actor', true), '')::jsonb ->> 'auth' = %s"""


@contextmanager
def acting(by: Actor, reason: str = "") -> Iterator[None]:
    """Attribute account changes inside the block to this actor, in one transaction, with the reason if given."""
    actor = {"by": by.ref, "person": by.person, "auth": by.auth, "address": by.address}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_NOW)
        before, tx, _ = cursor.fetchone()
        cursor.execute(_SAY, [_signed(actor | ({"reason": reason} if reason else {}), tx)])
        yield
        cursor.execute(_SAY, [before])  # an enclosing transaction keeps its own actor


def sign_if_nobody_acts() -> None:
    """Sign changes as the application's own (made at a shell or during setup) unless an actor is named."""
    with connection.cursor() as cursor:
        cursor.execute(_NOW)
        before, tx, role = cursor.fetchone()
        if not before:
            actor = {"by": f"{DATABASE}:{role}", "person": None, "auth": DATABASE, "address": ""}
            cursor.execute(_SAY, [_signed(actor, tx)])


def end_unnamed_actor() -> None:
    """Clear the actor that `sign_if_nobody_acts` set; keep a named actor."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, [DATABASE])


def _signed(actor: dict[str, Any], tx: str) -> str:
    code = row_code(code_key(), TABLE, actor | {"tx": tx})
    return json.dumps(actor | {"code": code.hex()})
