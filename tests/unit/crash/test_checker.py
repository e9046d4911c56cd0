"""The checker finds faults: each test spoils the record of a good run in one way."""

from __future__ import annotations

import copy
import hashlib
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cases import each_case
from tests.system.crash.checker import Expected, Facts, Link, _budget, judge
from tests.system.crash.told import judge_attributes, judge_messages
from tests.unit.crash.journals import used

RUN = "0199b6b4-3c8e-7000-8000-000000000001"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
EXPECTED = Expected({"erp.create_vendor": 1, "email.unsafe": 1}, gates=1, denied={"gated": "erp.create_vendor"})
EARLIER, OWNER, LATER = 101, 102, 103  # the processes that claimed the run, in order
BODY, EMPTY = "b" * 64, hashlib.sha256(b"").hexdigest()


def at(seconds: float) -> str:
    return (BEGAN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def journal() -> list[dict[str, Any]]:
    """Return a run with a gated keyed call and a mail, as `/events` shows it."""
    items: list[tuple[str, int, str | None, str | None, dict[str, Any]]] = [
        ("RunCreated", 0, None, None, {}),
        ("RunClaimed", 1, None, None, {"pid": EARLIER}),
        ("VisitEntered", 1, None, None, {}),
        ("ApprovalRequested", 1, "0.1/1", "asked", {"tool": "gated"}),
        ("ApprovalDecided", 1, "0.1/1", "decided", {"verdict": "approved"}),
        ("RunClaimed", 2, None, None, {"pid": OWNER}),
        ("ToolInvoked", 2, "0.1/1", "intent", {"grant": "0.1/1"}),
        ("ToolReturned", 2, "0.1/1", "result", {}),
        ("ToolInvoked", 2, "0.1/2", "intent", {"grant": None}),
        ("ToolReturned", 2, "0.1/2", "result", {}),
        ("RunCompleted", 2, None, None, {}),
    ]
    prev, events = hashlib.sha256(uuid.UUID(RUN).bytes).hexdigest(), []
    for seq, (kind, epoch, slot, fact, data) in enumerate(items, start=1):
        link = hashlib.sha256(f"{prev}{seq}".encode()).hexdigest()
        events.append(
            {
                "seq": seq,
                "kind": kind,
                "epoch": epoch,
                "slot": slot,
                "attempt": 0,
                "fact": fact,
                "data": data,
                "at": at(seq),
                "prev_hash": prev,
                "hash": link,
            }
        )
        prev = link
    return events


def entry(slot: str, fact: str, seconds: float, *, attempt: int = 0) -> dict[str, Any]:
    is_keyed = slot == "0.1/1"
    return {
        "slot": slot,
        "attempt": attempt,
        "fact": fact,
        "tool": "gated" if is_keyed else "unsafe",
        "at": at(seconds),
        "digest": None,
        "replay_class": "idempotent_with_key" if is_keyed else "unsafe_on_replay",
        "key": f"key-{attempt}" if is_keyed else None,
    }


def effect(
    operation: str,
    key: str | None,
    seconds: float,
    *,
    executed: bool = True,
    body: str = BODY,
    sender: int | None = None,
    sent: float | None = None,
) -> dict[str, Any]:
    return {
        "system": "email" if key is None else "erp",
        "operation": operation,
        "idempotency_key": key,
        "body_sha256": body,
        "received_at": at(seconds),
        "executed": executed,
        "sender": sender,
        "sent_at": None if sent is None else at(sent),
    }


def stored() -> list[Link]:
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
        {
            "state": "completed",
            "error": None,
            "waiting_for": [],
            "epoch": 2,
            "seq": 11,
            "usage": used(),
            "attributes": {},
        },
        journal(),
        [
            entry("0.1/1", "pending", 7),
            entry("0.1/1", "committed", 8),
            entry("0.1/2", "pending", 9),
            entry("0.1/2", "committed", 10),
        ],
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


def _attributes(slot: str | None, *named: str, **values: str) -> dict[str, Any]:
    data = {"named": [*named], "names": [*values], "values": [*values.values()]}
    return {"kind": "AttributesSet", "slot": slot, "attempt": 0, "data": data}


def test_what_a_run_is_found_by_is_what_its_journal_set_last() -> None:
    facts = good()
    facts.events.extend([_attributes(None, "a", "b", a="1", b="x"), _attributes("0.1/9", "a", "b", a="2")])
    facts.run["attributes"].update(a=2)
    assert list(judge_attributes(facts)) == []
    for wrong in ({"a": 1}, {"a": 2, "b": "x"}, {}, {"a": [2, 2]}):
        facts.run["attributes"].clear()
        facts.run["attributes"].update(wrong)
        assert [kind for kind, _ in judge_attributes(facts)] == ["broken"], wrong
    facts.run["attributes"].update(a=2)
    facts.events.append(facts.events[-1])
    assert [kind for kind, _ in judge_attributes(facts)] == ["duplicate"]


def _message(kind: str, n: int = 0) -> dict[str, Any]:
    return {"seq": 0, "kind": kind, "slot": None, "attempt": 0, "data": {"n": n, "outcome": "answered"}}


CAME, HANDLED = "MessageReceived", "MessageHandled"


@each_case(
    ("told", "is_well"),
    [
        ([(CAME, 1), (CAME, 2), (HANDLED, 1), (HANDLED, 2)], True),
        ([(CAME, 1), (CAME, 2), (HANDLED, 2)], False),
        ([(CAME, 1), (HANDLED, 1), (HANDLED, 1)], False),
        ([(HANDLED, 1), (CAME, 1)], False),
        # A message that the failed run hadn't handled was answered then: a retry continues with later ones.
        ([(CAME, 1), ("RunFailed", 0), (CAME, 2), (HANDLED, 2)], True),
        ([(CAME, 1), ("RunFailed", 0), (HANDLED, 1)], False),
    ],
)
def test_messages_are_handled_once_in_their_order(told: list[tuple[str, int]], is_well: bool) -> None:
    facts = good()
    facts.events.extend(_message(kind, n) for kind, n in told)
    facts.events[:] = [event for event in facts.events if event["kind"] != "RunCompleted"]
    assert (list(judge_messages(facts)) == []) is is_well


def test_a_run_that_the_api_forgot_is_lost() -> None:
    assert [finding.kind for finding in judge(Facts(RUN, {}, [], [], [], []), EXPECTED)] == ["lost"]


def _set(name: str, **values: Any) -> Callable[[Facts], None]:
    return lambda facts: getattr(facts, name).update(values)


def _sends_late(
    facts: Facts,
    seconds: float,
    *,
    times: int = 1,
    sender: int | None = None,
    result: str = "ToolReturned",
    sent: float | None = None,
) -> None:
    """Let a burst of announced requests be sent this many seconds after the result."""
    facts.events[2].update(kind="ToolRedispatched", slot="0.1/1", data={"tries": 16})
    facts.events[7].update(kind=result)
    facts.run["usage"].update(tool_calls=1 + (result != "CallbackReceived"))  # type: ignore[attr-defined]
    for n in range(times):
        moment = 8 + seconds * (n + 1) / times
        when = moment if sent is None else 8 + sent
        facts.effects.append(
            effect(
                "create_vendor", "key-0", moment, executed=False, sender=sender, sent=None if sender is None else when
            )
        )


@each_case(
    "how",
    [
        {"seconds": 0.5},
        {"seconds": 0.5, "sender": EARLIER},
        {"seconds": 30, "sender": EARLIER, "sent": -0.1},
        {"seconds": 30, "sender": OWNER, "sent": -0.1, "times": 5},
        {"seconds": 0.5, "sender": OWNER, "result": "CallbackReceived"},
    ],
)
def test_a_request_that_was_under_way_when_the_answer_came_is_no_harm(how: dict[str, Any]) -> None:
    facts = good()
    _sends_late(facts, **how)
    assert judge(facts, EXPECTED) == []


@each_case(
    "how",
    [
        {"seconds": 0.9, "times": 15, "sender": OWNER},
        {"seconds": 0.9, "times": 15, "sender": OWNER, "result": "CallbackReceived"},
        {"seconds": 0.9, "times": 15, "sender": EARLIER},
        {"seconds": 0.9, "times": 15},
        {"seconds": 0.05, "sender": OWNER},
        {"seconds": 0.05, "sender": OWNER, "result": "ToolFailed"},
        {"seconds": 3, "sender": EARLIER},
        {"seconds": 3},
    ],
)
def test_what_is_sent_after_the_result_is_found_within_the_second_and_within_a_burst(how: dict[str, Any]) -> None:
    facts = good()
    _sends_late(facts, **how)
    assert [finding.kind for finding in judge(facts, EXPECTED)] == ["broken"]


def test_a_later_claim_that_sends_what_is_answered_is_found_at_once() -> None:
    facts = good()
    _sends_late(facts, 0.05, sender=LATER)
    facts.events[8].update(kind="RunClaimed", epoch=3, slot=None, fact=None, data={"pid": LATER})
    assert "create_vendor was sent 1 times when its result was on record" in "; ".join(
        f.what for f in judge(facts, EXPECTED)
    )


def test_nor_is_one_by_a_worker_that_came_back_from_the_dead() -> None:
    facts = good()
    _sends_late(facts, 3)
    assert judge(facts, replace(EXPECTED, may_send_late=True)) == []


SPOILT: dict[str, tuple[str, Callable[[Facts], Any]]] = {
    "it still runs": ("stuck", _set("run", state="running")),
    "it failed": ("lost", _set("run", state="failed")),
    "an effect is missing": ("lost", lambda f: f.effects.pop()),
    "an effect happened under another key": (
        "duplicate",
        lambda f: f.effects.append(effect("create_vendor", "key-x", 8)),
    ),
    "an effect happened twice under one key": (
        "duplicate",
        lambda f: f.effects.append(effect("create_vendor", "key-0", 7.6)),
    ),
    "a mail was sent twice": ("duplicate", lambda f: f.effects.append(effect("unsafe", None, 9.6))),
    "a repeat had another body": (
        "broken",
        lambda f: f.effects.append(effect("create_vendor", "key-0", 7.6, executed=False, body="c" * 64)),
    ),
    "a call came before its intent": ("broken", lambda f: f.effects[0].update(received_at=at(6))),
    "a call was repeated unannounced": (
        "broken",
        lambda f: f.effects.append(effect("create_vendor", "key-0", 8.5, executed=False)),
    ),
    "a call was sent again, long after its result": ("broken", lambda f: _sends_late(f, 3)),
    "a call came under a key of nobody": (
        "broken",
        lambda f: f.effects.append(effect("create_vendor", "key-x", 8, executed=False)),
    ),
    "an intent is on record twice": ("broken", lambda f: f.ledger.append(entry("0.1/1", "pending", 8))),
    "a result has no intent": ("broken", lambda f: f.ledger.pop(0)),
    "a call was attempted again unasked": (
        "broken",
        lambda f: f.ledger.append(entry("0.1/2", "pending", 10, attempt=1)),
    ),
    "an outcome was never settled": ("lost", lambda f: f.ledger[3].update(fact="unknown")),
    "a gate asked twice": (
        "duplicate",
        lambda f: f.events[2].update(kind="ApprovalRequested", slot="0.1/1", data={"tool": "gated"}),
    ),
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


@each_case("what", SPOILT)
def test_whatever_is_wrong_is_found(what: str) -> None:
    kind, spoil = SPOILT[what]
    facts = copy.deepcopy(good())
    spoil(facts)
    assert kind in [finding.kind for finding in judge(facts, EXPECTED)]


NOT_DONE = {"kind": "ToolReconciled", "slot": "0.1/2", "fact": "reconciled.0", "data": {"verdict": "did_not"}}
DONE = {"kind": "CallbackArrivedLate", "slot": "0.1/2", "fact": "late", "data": {}}


@each_case(("told", "is_found"), [((NOT_DONE, DONE), True), ((DONE, NOT_DONE), False), ((DONE,), True)])
def test_attempt_despite_a_late_result_is_found(told: tuple[dict[str, Any], ...], is_found: bool) -> None:
    facts = copy.deepcopy(good())
    for event, answer in zip(facts.events[2:4], told, strict=False):
        event.update(answer)
    facts.events[8]["attempt"] = 1
    assert any("witness" in finding.what for finding in judge(facts, EXPECTED)) is is_found


# --- budgets ----------------------------------------------------------------------------------------------------------


def spending() -> Facts:
    """Return a run that just fits its cap with two model requests, one answer lost."""
    route = {"tokens_in": 10, "tokens_out": 5, "usd_micro": 7}
    debit = {"model_calls": 1, **route, "is_estimate": False}
    answer = debit | {"n": 1, "tokens_in": 9, "usd_micro": 6}
    items: list[tuple[str, str | None, dict[str, Any]]] = [
        ("BudgetSet", None, {"caps": {"usd_micro": 20, "model_calls": 2, "steps": 3, "tool_calls": 2}}),
        ("ModelRouted", "0.1/0", {"n": 0, **route}),
        ("BudgetDebited", "0.1/0", debit | {"n": 0, "is_estimate": True}),
        ("ModelRouted", "0.1/0", {"n": 1, **route}),
        ("ModelResponded", "0.1/0", {}),
        ("BudgetDebited", "0.1/0", answer),
        ("ToolInvoked", "0.1/1", {}),
        ("ToolInvoked", "0.1/2", {}),
        ("ToolReturned", "0.1/2", {}),
        ("ToolReturned", "0.1/1", {}),
    ]
    events = [
        {"seq": n, "kind": kind, "slot": slot, "attempt": 0, "data": data} for n, (kind, slot, data) in enumerate(items)
    ]
    run = {"state": "completed", "usage": used(tokens_in=19, tokens_out=10, usd_micro=13, model_calls=2)}
    return Facts(RUN, run, events, [], [], [])


def _uses(**amounts: int) -> Callable[[Facts], None]:
    return lambda facts: facts.run["usage"].update(amounts)  # type: ignore[attr-defined]


def _caps(**caps: int) -> Callable[[Facts], None]:
    return lambda facts: facts.events[0]["data"]["caps"].update(caps)


MISSPENT: dict[str, tuple[str, Callable[[Facts], Any]]] = {
    "a debit wasn't booked": ("lost", _uses(usd_micro=7)),
    "a debit was booked twice": ("duplicate", _uses(tokens_in=29)),
    "a call was counted twice": ("broken", _uses(tool_calls=3)),
    "a call wasn't counted": ("broken", _uses(tool_calls=1)),
    "a lost request has no debit": ("lost", lambda f: f.events.pop(2)),
    "a request was debited twice": ("duplicate", lambda f: f.events[5]["data"].update(n=0)),
    "what never went out was debited": ("broken", lambda f: f.events.pop(1)),
    "an answer stands as an estimate": ("lost", lambda f: f.events[5]["data"].update(is_estimate=True)),
    "a request went out beyond the cap in dollars": ("broken", _caps(usd_micro=13)),
    "a request went out beyond the cap on requests": ("broken", _caps(model_calls=1)),
    "a call went out beyond the cap on steps": ("broken", _caps(steps=2)),
    "what was set aside for another was used": ("broken", _caps(tool_calls=1)),
}


def test_what_was_spent_well_is_found_well() -> None:
    assert list(_budget(spending())) == []


@each_case("what", MISSPENT)
def test_whatever_was_misspent_is_found(what: str) -> None:
    kind, spoil = MISSPENT[what]
    facts = copy.deepcopy(spending())
    spoil(facts)
    assert kind in [found for found, _ in _budget(facts)]
