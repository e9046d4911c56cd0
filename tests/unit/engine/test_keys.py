"""Idempotency keys and callback tokens: derived with a secret, the same forever, masked in errors."""

from __future__ import annotations

import logging
import sys

from durableagents import ToolCall
from durableagents.logs import LinksStaySecret, OneLine
from ledger.redacted import masked_key, masked_text
from runs.engine.canonical import callback_token, idempotency_key
from runs.engine.errors import describe_error, traceback_of

RUN, SECRET = "0192f0c4-0000-7000-8000-000000000001", b"s" * 32
KEY, TOKEN = idempotency_key(RUN, "0.1/1", 0, SECRET), callback_token(RUN, "0.1/1", 0, SECRET)
TOLD = f"409 for https://erp/orders?idempotency_key={KEY}, answer to https://here/api/v1/callbacks/{TOKEN}?n=1"


def test_derivations_never_change() -> None:
    """Another release must send again under the same key after a restore."""
    assert idempotency_key(RUN, "0.1/1", 0, None) == "da-7214125c81e981ae60691bd06b49e6b9ec26f272"
    assert KEY == "da-7ceece4f73783118e24ed86e7b0080c56dee9159"
    assert TOKEN == "2dda38aa45550e0baaeb23bcacbb5538b6a168bedbe4c5c08ec48830c361a08a"


def test_another_run_call_attempt_or_secret_gives_another_key_and_token() -> None:
    places = [(RUN, "0.1/1", 0), (RUN[:-1] + "2", "0.1/1", 0), (RUN, "0.1/2", 0), (RUN, "0.1/1", 1)]
    made = [
        (f(*place, secret)) for f in (idempotency_key, callback_token) for place in places for secret in (b"a", b"b")
    ]
    assert len({each.removeprefix("da-")[:40] for each in made}) == 16


def test_masked_texts_keep_the_beginning_of_a_key_and_nothing_of_a_token() -> None:
    text = f"{KEY[:11]}…"
    assert masked_key(KEY) == text and masked_key(None) is None and masked_key("order-2026-0001") == "order-2026-0001"
    assert (
        masked_text(TOLD)
        == f"409 for https://erp/orders?idempotency_key={text}, answer to https://here/api/v1/callbacks/…?n=1"
    )
    assert masked_text(masked_text(TOLD)) == masked_text(TOLD)
    digest = f"panda-{'0' * 40} {KEY}0"
    assert masked_text(digest) == digest


def test_errors_logs_and_calls_tell_no_key_or_token() -> None:
    call = ToolCall(RUN, "t", "order", "0.1/1", 0, KEY, f"https://here/api/v1/callbacks/{TOKEN}", 5.0)
    try:
        raise ValueError(TOLD)
    except ValueError as error:
        texts = [describe_error(error), traceback_of(error), repr(call)]
        record = logging.LogRecord("x", logging.ERROR, "", 1, "failed: %s", (TOLD,), sys.exc_info())
    assert LinksStaySecret().filter(record)
    texts.append(OneLine().format(record))
    assert "Traceback" in texts[-1]
    for text in texts:
        assert KEY not in text and TOKEN not in text, text
