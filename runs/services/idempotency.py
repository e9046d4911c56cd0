"""`Idempotency-Key`: the response is stored in the transaction of the request."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from rest_framework.exceptions import ParseError

from ledger.codec import encrypted
from ledger.codes import mac
from ledger.contents import INSTALLATION, stored_text, text_in
from ledger.erasure import Erased
from ledger.errors import DurableAgentsError
from ledger.keys import word_key
from ledger.web.renderers import ShapeRenderer
from ledger.web.shapes import Shape
from runs.models import IdempotencyRecord

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_KEEP = """
    INSERT INTO runs_idempotencyrecord (principal, key, body_hash, status, body, created_at)
    VALUES (%s, %s, %s, %s, to_jsonb(%s::text), statement_timestamp())"""


class KeyInUse(DurableAgentsError):
    """The first request with this key is still in progress."""

    status, code, title = 409, "idempotency-in-progress", "Still in progress"

    def __init__(self) -> None:
        super().__init__("A request with this Idempotency-Key is still in progress. Try again in a moment.")


class KeyReused(DurableAgentsError):
    """The key was used for another request."""

    status, code, title = 422, "idempotency-mismatch", "Idempotency-Key used for something else"

    def __init__(self) -> None:
        super().__init__("This Idempotency-Key was used for a different request. Use a new key.")


def key_from(header: str | None) -> str | None:
    """Return the header's value, checked. Raises ParseError."""
    if header is not None and not _KEY.fullmatch(header):
        raise ParseError("Idempotency-Key must be 1 to 255 printable ASCII characters without spaces.")
    return header


@transaction.atomic
def answer_once(principal: str, key: str, request: Any, act: Callable[[], tuple[int, Any]]) -> tuple[int, bytes]:
    """Run `act` for the first request of (principal, key), and return the same bytes for repeated ones.
    Fields that are shown only once are left out of repeated responses.

    A failed `act` stores nothing, so the key may be used again. A concurrent second request fails at once. The
    transaction's advisory lock may also be held for another key with the same hash. The two cases can't be
    distinguished; in both, the client may try again. Raises KeyInUse, KeyReused.
    """
    encode = json.dumps(request, sort_keys=True, separators=(",", ":")).encode()
    # keyed, because a plain digest would confirm a guess of the input
    digest = mac(word_key(), b"request\x00" + encode)
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM runs_answer_to(%s, %s, %s)", [_lock_number(principal, key), principal, key])
        is_ours, body_hash, status, known = cursor.fetchone()
    # This is checked even without the lock, because another repeated request may hold it.
    if body_hash is not None:
        # Older rows have a plain digest. If the run was erased, the digest was removed with it.
        if status != Erased.status and bytes(body_hash) not in (digest, hashlib.sha256(encode).digest()):
            raise KeyReused()
        return status, text_in(known).encode()
    if not is_ours:
        raise KeyInUse()
    status, body = act()
    # The body is stored as text: jsonb would reorder its members, and each repeat must get the same bytes.
    text = ShapeRenderer().render(body)
    kept = ShapeRenderer().render(body.as_kept()) if isinstance(body, Shape) and body.shown_once else text
    with connection.cursor() as cursor:
        cursor.execute(_KEEP, [principal, key, digest, status, _stored(kept.decode())])
    return status, text


def _stored(text: str) -> str:
    """Return a response in its stored form.
    It is encrypted with the key of the run that it names, so that erasing the run erases it."""
    body = json.loads(text)
    for name in ("run_id", "run", "id") if isinstance(body, dict) else ():
        try:
            run_id = UUID(body[name])
            if encrypted(text, run_id) is not None:
                return stored_text(text, run_id)
        except (KeyError, TypeError, AttributeError, ValueError):  # not a run's id, or the run has no key
            continue
    return stored_text(text, INSTALLATION)


def kept_answer(principal: str, key: str) -> bytes | None:
    """Return the stored response for (principal, key); None if there is none yet."""
    return kept_answers(principal, [key]).get(key)


def kept_answers(principal: str, keys: Sequence[str]) -> dict[str, bytes]:
    """Return the stored responses by key. Keys without one are left out."""
    kept = IdempotencyRecord.objects.filter(principal=principal, key__in=list(keys)).values_list("key", "body")
    return {key: text_in(str(body)).encode() for key, body in kept}


def _lock_number(principal: str, key: str) -> int:
    named = hashlib.sha256(f"idempotency\n{principal}\n{key}".encode()).digest()
    return int.from_bytes(named[:8], "big", signed=True)
