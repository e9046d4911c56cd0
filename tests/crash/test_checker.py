"""The checker finds what it is there to find: each test takes the record of a good run and spoils it in one way."""

from __future__ import annotations

import copy
import hashlib
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.crash.checker import Expected, Facts, Link, judge

RUN = "0199b6b4-3c8e-7000-8000-000000000001"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
EXPECTED = Expected({"erp.create_vendor": 1, "email.unsafe": 1}, gates=1, denied={"gated": "erp.create_vendor"})
BODY, EMPTY = "b" * 64, hashlib.sha256(b"").hexdigest()


def at(seconds: float) -> str:
    return (BEGAN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def journal() -> list[dict[str, Any]]:
    """A run with a gated keyed call and a mail, as `/events` tells it."""
    told: list[tuple[str, int, str | None, str | None, dict[str, Any]]] = [
        ("RunCreated", 0, None, None, {}),
        ("RunClaimed", 1, None, None, {}),
        ("VisitEntered", 1, None, None, {}),
        ("ApprovalRequested", 1, "0.1/1", "asked", {"tool": "gated"}),
        ("ApprovalDecided", 1, "0.1/1", "decided", {"verdict": "approved"}),
        ("RunClaimed", 2, None, None, {}),
        ("ToolInvoked", 2, "0.1/1", "intent", {"grant": "0.1/1"}),
        ("ToolReturned", 2, "0.1/1", "result", {}),
        ("ToolInvoked", 2, "0.1/2", "intent", {"grant": None}),
        ("ToolReturned", 2, "0.1/2", "result", {}),
        ("RunCompleted", 2, None, None, {}),
    ]
    prev, events = hashlib.sha256(uuid.UUID(RUN).bytes).hexdigest(), []
    for seq, (kind, epoch, slot, fact, data) in enumerate(told, start=1):
        link = hashlib.sha256(f"{prev}{seq}".encode()).hexdigest()
        events.append(
            {"seq": seq, "kind": kind, "epoch": epoch, "slot": slot, "attempt": 0, "fact": fact, "data": data, "at": at(seq), "prev_hash": prev, "hash": link}
        )
        prev = link
    return events


def entry(slot: str, fact: str, seconds: float, *, attempt: int = 0) -> dict[str, Any]:
    is_keyed = slot == "0.1/1"
    return {
        "slot": slot, "attempt": attempt, "fact": fact, "tool": "gated" if is_keyed else "unsafe", "at": at(seconds), "digest": None,
        "replay_class": "idempotent_with_key" if is_keyed else "unsafe_on_replay", "key": f"key-{attempt}" if is_keyed else None,
    }  # fmt: skip


def effect(operation: str, key: str | None, seconds: float, *, executed: bool = True, body: str = BODY) -> dict[str, Any]:
    return {
        "system": "email" if key is None else "erp", "operation": operation, "idempotency_key": key, "body_sha256": body,
        "received_at": at(seconds), "executed": executed,
    }  # fmt: skip


def stored() -> list[Link]:
    """Two journal rows whose bytes give their hashes."""
    links: list[Link] = []
    prev = hashlib.sha256(uuid.UUID(RUN).bytes).digest()
    for seq in (1, 2):
        body = hashlib.sha256(b"{}" + bytes(32)).digest()
        micros = (BEGAN - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        numbers = b"".join(number.to_bytes(8, "big") for number in (seq, 1, micros))
        link = hashlib.sha256(prev + numbers + body).digest()
        links.append(Link(seq, 1, BEGAN, b"{}", None, prev, link))
        prev = link
    return links


def good() -> Facts:
    return Facts(
        RUN,
        {"state": "completed", "error": None, "waiting_for": [], "epoch": 2, "seq": 11},
        journal(),
        [entry("0.1/1", "pending", 7), entry("0.1/1", "committed", 8), entry("0.1/2", "pending", 9), entry("0.1/2", "committed", 10)],
        [{"id": "1"}],
        [effect("create_vendor", "key-0", 7.5), effect("unsafe", None, 9.5)],
        stored(),
    )


def test_a_good_run_is_found_good() -> None:
    assert judge(good(), EXPECTED) == []


def test_a_repeat_under_the_same_key_and_a_read_by_a_hook_are_no_harm() -> None:
    facts = good()
    facts.effects.insert(1, effect("create_vendor", "key-0", 7.6, executed=False))
    facts.effects.insert(1, effect("find_vendor", "key-0", 7.6, executed=False, body=EMPTY))
    facts.events[2].update(kind="ToolRedispatched", slot="0.1/1")
    assert judge(facts, EXPECTED) == []


def test_a_run_that_the_api_forgot_is_lost() -> None:
    assert [finding.kind for finding in judge(Facts(RUN, {}, [], [], [], []), EXPECTED)] == ["lost"]


def _set(name: str, **values: Any) -> Callable[[Facts], None]:
    return lambda facts: getattr(facts, name).update(values)


def _sends_late(facts: Facts, seconds: float) -> None:
    """Announced beforehand, in a burst, and used too late."""
    facts.events[2].update(kind="ToolRedispatched", slot="0.1/1", data={"tries": 16})
    facts.effects.append(effect("create_vendor", "key-0", 8 + seconds, executed=False))


def test_a_request_that_was_under_way_when_the_answer_came_is_no_harm() -> None:
    facts = good()
    _sends_late(facts, 0.5)
    assert judge(facts, EXPECTED) == []


def test_nor_is_one_by_a_worker_that_came_back_from_the_dead() -> None:
    facts = good()
    _sends_late(facts, 3)
    assert judge(facts, replace(EXPECTED, may_send_late=True)) == []


SPOILT: dict[str, tuple[str, Callable[[Facts], Any]]] = {
    "it still runs": ("stuck", _set("run", state="running")),
    "it failed": ("lost", _set("run", state="failed")),
    "an effect is missing": ("lost", lambda f: f.effects.pop()),
    "an effect happened under another key": ("duplicate", lambda f: f.effects.append(effect("create_vendor", "key-x", 8))),
    "an effect happened twice under one key": ("duplicate", lambda f: f.effects.append(effect("create_vendor", "key-0", 7.6))),
    "a mail was sent twice": ("duplicate", lambda f: f.effects.append(effect("unsafe", None, 9.6))),
    "a repeat had another body": ("broken", lambda f: f.effects.append(effect("create_vendor", "key-0", 7.6, executed=False, body="c" * 64))),
    "a call came before its intent": ("broken", lambda f: f.effects[0].update(received_at=at(6))),
    "a call was repeated unannounced": ("broken", lambda f: f.effects.append(effect("create_vendor", "key-0", 8.5, executed=False))),
    "a call was sent again, long after its result": ("broken", lambda f: _sends_late(f, 3)),
    "a call came under a key of nobody": ("broken", lambda f: f.effects.append(effect("create_vendor", "key-x", 8, executed=False))),
    "an intent is on record twice": ("broken", lambda f: f.ledger.append(entry("0.1/1", "pending", 8))),
    "a result has no intent": ("broken", lambda f: f.ledger.pop(0)),
    "a call was attempted again unasked": ("broken", lambda f: f.ledger.append(entry("0.1/2", "pending", 10, attempt=1))),
    "an outcome was never settled": ("lost", lambda f: f.ledger[3].update(fact="unknown")),
    "a gate asked twice": ("duplicate", lambda f: f.events[2].update(kind="ApprovalRequested", slot="0.1/1", data={"tool": "gated"})),
    "an approval was used twice": ("duplicate", lambda f: f.events[8]["data"].update(grant="0.1/1")),
    "a denied call was sent": ("broken", lambda f: f.events[4]["data"].update(verdict="rejected")),
    "a denied call had its effect": ("duplicate", lambda f: f.events[4]["data"].update(verdict="expired")),
    "a gate was not asked": ("broken", lambda f: f.approvals.clear()),
    "an event is missing": ("broken", lambda f: f.events.pop(4)),
    "the journal ends early": ("lost", lambda f: f.events.pop()),
    "an event does not link": ("broken", lambda f: f.events[5].update(prev_hash="0" * 64)),
    "a stale worker wrote": ("broken", lambda f: f.events[7].update(epoch=1)),
    "a claim did not raise the epoch": ("broken", lambda f: f.events[5].update(epoch=1)),
    "a fact is on record twice": ("broken", lambda f: f.events[8].update(slot="0.1/1")),
    "it ended twice": ("broken", lambda f: f.events[9].update(kind="RunCompleted")),
    "a call was made after a cancel": ("broken", lambda f: f.events[2].update(kind="CancelRequested")),
    "a stored byte was changed": ("broken", lambda f: f.links.__setitem__(1, replace(f.links[1], clear=b"[]"))),
}


@pytest.mark.parametrize("what", SPOILT)
def test_whatever_is_wrong_is_found(what: str) -> None:
    kind, spoil = SPOILT[what]
    facts = copy.deepcopy(good())
    spoil(facts)
    assert kind in [finding.kind for finding in judge(facts, EXPECTED)]
