"""Judges a run after the faults, by effects outside and the API's answers. Imports no app code.

The promises (README): pure calls may repeat; a keyed call has one effect, always under one key with the same bytes;
an unsafe call is sent at most once unless a person says otherwise; nothing accepted is lost or stuck; people are asked
once; the journal has no gap and its chain holds.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.system.crash.changed import amendments, judge_changed
from tests.system.crash.granted import judge_again, lapsed
from tests.system.crash.handed import judge_handed
from tests.system.crash.late import judge_late
from tests.system.crash.links import Kind as Kind
from tests.system.crash.links import Link as Link
from tests.system.crash.links import broken_at
from tests.system.crash.policed import asked_by_rule
from tests.system.crash.settled import judge_settled
from tests.system.crash.staged import judge_stages, staged_slots
from tests.system.crash.told import judge_attributes, judge_messages, reopenings
from tests.system.crash.truth import denials, key_on_record

Row = Mapping[str, Any]

ENDED = frozenset({"completed", "failed", "cancelled"})
_FINAL_FACTS = frozenset({"committed", "failed", "reconciled"})
# The tolerance between two clocks of one machine: the database's and the sandbox's.
_CLOCKS = timedelta(milliseconds=5)
# A request leaves a moment after it was allowed, a gap that no fence closes. The worker that recorded the result has
# none; from another worker one request may fall into it, at most this late. (Without a recorded sender: also how long
# it may be under way.)
_GAP = timedelta(seconds=1)
# Recorded by the worker that made the call, after its last try; other results come from outside, perhaps during a try.
_BY_ITS_CALLER = frozenset({"ToolReturned", "ToolFailed", "ToolRead", "ToolReadAnew"})


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    run_id: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: run {self.run_id}: {self.what}"


@dataclass(frozen=True)
class Expected:
    """The effects of a whole run, by `system.operation`, and the number of its gates.

    `denied`: the effect missing if that tool's gate stays closed. `may_send_late`: a worker was wrongly believed
    dead and may have sent after the result was recorded, which no fence prevents.
    """

    effects: Mapping[str, int]
    gates: int = 0
    state: str = "completed"
    may_be_cancelled: bool = False
    may_be_left: bool = False
    denied: Mapping[str, str] = field(default_factory=dict)
    may_send_late: bool = False
    children: int = 0

    @property
    def ends(self) -> set[str]:
        """Return its allowed end states: people may have cancelled it, or left it failed."""
        more = {"cancelled": self.may_be_cancelled, "failed": self.may_be_left}
        return {self.state, *(state for state, is_allowed in more.items() if is_allowed)}


@dataclass(frozen=True)
class Facts:
    """One run as the API and the oracle describe it. `links`: its journal rows as stored, if dumped."""

    run_id: str
    run: Row
    events: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    approvals: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    links: list[Link] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Give effects the part of their keys that the ledger has."""
        items = [row | {"idempotency_key": key_on_record(row["idempotency_key"])} for row in self.effects]
        object.__setattr__(self, "effects", items)


def judge(facts: Facts, expected: Expected) -> list[Finding]:
    if not facts.run:
        return [Finding("lost", facts.run_id, "the API answered for it and no longer knows it")]
    found: list[tuple[Kind, str]] = []
    if facts.run["state"] not in ENDED:
        waits = ", ".join(wait["kind"] for wait in facts.run["waiting_for"]) or "nothing"
        found.append(("stuck", f"{facts.run['state']}, waiting for {waits}, at event {facts.run['seq']}"))
    elif facts.run["state"] not in expected.ends:
        found.append(("lost", f"{facts.run['state']} instead of {expected.state}: {facts.run['error']}"))
    found += _effects(facts, expected)
    found += _calls(facts, expected)
    found += _people(facts, expected)
    found += _witnesses(facts)
    found += _journal(facts)
    found += judge_messages(facts)
    found += judge_stages(facts)
    found += judge_late(facts)
    found += judge_changed(facts)
    found += judge_again(facts)
    found += judge_handed(facts)
    found += judge_settled(facts)
    found += _budget(facts)
    found += [*judge_attributes(facts), *broken_at(facts.run_id, facts.links)]
    return [Finding(kind, facts.run_id, what) for kind, what in found]


# --- effects outside ------------------------------------------------------------------------------


def _effects(facts: Facts, expected: Expected) -> Iterable[tuple[Kind, str]]:
    """Check for exactly the expected effects, each with an intent of ours."""
    done = [row for row in facts.effects if row["executed"]]
    counted = Counter(f"{row['system']}.{row['operation']}" for row in done)
    wanted = Counter(expected.effects)
    wanted.subtract(expected.denied[tool] for tool in _denied(facts).values() if tool in expected.denied)
    is_whole = facts.run["state"] == expected.state and facts.run["state"] in ENDED
    for name in sorted(counted.keys() | wanted.keys()):
        if counted[name] > wanted[name]:
            yield "duplicate", f"{counted[name]} effects {name} instead of {wanted[name]}"
        elif counted[name] < wanted[name] and is_whole:
            yield "lost", f"{counted[name]} effects {name} instead of {wanted[name]}"
    intents = {entry["key"] for entry in facts.ledger if entry["fact"] == "pending"}
    for row in done:
        if row["idempotency_key"] is not None and row["idempotency_key"] not in intents:
            yield "broken", f"{row['operation']} happened under a key that no intent names"
    unsafe = Counter(
        e["tool"] for e in facts.ledger if e["fact"] == "pending" and e["replay_class"] == "unsafe_on_replay"
    )
    mails = [row for row in done if row["idempotency_key"] is None]
    if len(mails) > sum(unsafe.values()):
        yield "duplicate", f"{len(mails)} mails after {sum(unsafe.values())} intents"


def _denied(facts: Facts) -> dict[str, str]:
    """Return the slots of gates that a person or time denied, with their tools."""
    tools = {event["slot"]: event["data"]["tool"] for event in facts.events if event["kind"] == "ApprovalRequested"}
    decided = [event for event in facts.events if event["kind"] == "ApprovalDecided"]
    return {event["slot"]: tools.get(event["slot"], "") for event in decided if event["data"]["verdict"] != "approved"}


def _calls(facts: Facts, expected: Expected) -> Iterable[tuple[Kind, str]]:
    """Check that a call has one key, one body, one effect, and that each request was announced before its result."""
    sent: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in facts.effects:
        if row["idempotency_key"] is not None and row["body_sha256"] != hashlib.sha256(b"").hexdigest():
            sent[row["operation"], row["idempotency_key"]].append(row)
    intents: dict[tuple[str, int], Row] = {}
    keys: dict[str, tuple[str, int]] = {}
    for entry in facts.ledger:
        call = entry["slot"], entry["attempt"]
        if entry["fact"] == "pending":
            if call in intents:
                yield "broken", f"two intents for {call}"
            intents[call] = entry
            if entry["key"] is not None and keys.setdefault(entry["key"], call) != call:
                yield "broken", f"one key for {call} and {keys[entry['key']]}"
        elif call not in intents:
            yield "broken", f"{entry['fact']} without an intent for {call}"
    for (operation, key), rows in sent.items():
        if len({row["body_sha256"] for row in rows}) > 1:
            yield "broken", f"{operation} was sent with several bodies under one key"
        if sum(row["executed"] for row in rows) > 1:
            yield "duplicate", f"{operation} executed more than once under one key"
        if key not in keys:
            yield "broken", f"{operation} was sent under a key that no intent names"
            continue
        if moment(rows[0]["received_at"]) + _CLOCKS < moment(intents[keys[key]]["at"]):
            yield "broken", f"{operation} was sent before its intent"
        if len(rows) > _announced(facts, keys[key]):
            yield (
                "broken",
                f"{operation} was sent {len(rows)} times, and announced {_announced(facts, keys[key])} times",
            )
        result = next(
            (e for e in facts.events if (e["slot"], e["attempt"]) == keys[key] and e["fact"] == "result"), None
        )
        if result is not None and not expected.may_send_late and (late := _sent_after(rows, result, facts.events)):
            yield "broken", f"{operation} was sent {late} times when its result was on record"
    open_calls = [call for call in intents if not _is_settled(call, facts.ledger)]
    if facts.run["state"] == "completed" and open_calls:
        yield "lost", f"completed with calls of unknown outcome: {open_calls}"


def _sent_after(rows: list[Row], result: Row, events: list[dict[str, Any]]) -> int:
    """Count requests sent after the result was known, by sender and order rather than by arrival."""
    known = moment(result["at"]) + _CLOCKS
    claims = [(event["epoch"], event["data"].get("pid")) for event in events if event["kind"] == "RunClaimed"]
    after = [(row.get("sender"), moment(row.get("sent_at") or row["received_at"])) for row in rows]
    after = [(sender, sent) for sender, sent in after if sent > known]
    wrong = 0
    for sender, times in Counter(sender for sender, _ in after).items():
        first = min((epoch for epoch, pid in claims if pid == sender), default=0)
        last = max((epoch for epoch, pid in claims if pid == sender), default=0)
        is_owner = (
            sender is not None and first <= result["epoch"] <= last and _holder(claims, result["epoch"]) == sender
        )
        if first > result["epoch"] or (is_owner and result["kind"] in _BY_ITS_CALLER):
            wrong += times  # it had read the result, or written it
        elif times > 1 or any(sent > known + _GAP for who, sent in after if who == sender):
            wrong += times  # each try is allowed separately, so one may follow
    return wrong


def _holder(claims: list[tuple[int, Any]], epoch: int) -> Any:
    return next((pid for claimed, pid in claims if claimed == epoch), None)


def _announced(facts: Facts, call: tuple[str, int]) -> int:
    times = 0
    for event in facts.events:
        if (event["slot"], event["attempt"]) == call:
            if event["fact"] == "result":
                break
            times += event["kind"] == "ToolInvoked"
            times += event["data"].get("tries", 1) if event["kind"] == "ToolRedispatched" else 0
    return times


def _is_settled(call: tuple[str, int], ledger: list[dict[str, Any]]) -> bool:
    return any((e["slot"], e["attempt"]) == call and e["fact"] in _FINAL_FACTS for e in ledger)


# --- questions to people --------------------------------------------------------------------------


def _people(facts: Facts, expected: Expected) -> Iterable[tuple[Kind, str]]:
    """Check that each gate asks once, decides once, and lets one call through."""
    by_rule = asked_by_rule(facts.events)  # apart from the agent's own gates
    own = [e for e in facts.events if e["data"].get("approval_id") not in by_rule]
    counts = Counter(event["slot"] for event in own if event["kind"] == "ApprovalRequested")
    decided = Counter(event["slot"] for event in own if event["kind"] == "ApprovalDecided")
    used = Counter(
        event["data"]["grant"]
        for event in facts.events
        if event["kind"] == "ToolInvoked"
        and event["data"]["grant"]
        and event["attempt"] == 0  # for further attempts see below
    )
    over = lapsed(facts.events)  # asked and decided once more
    for slot, times in ((counts - amendments(facts.events) - over) | (decided - over) | used).items():
        if times > 1 and not (
            slot in staged_slots(facts) and used[slot] < 2
        ):  # each stage asks: judge_stages checks those
            yield "duplicate", f"asked, decided or used {times} times: the gate of {slot}"
    for slot in _denied(facts).keys() & {e["slot"] for e in facts.ledger if e["fact"] == "pending"}:
        yield "broken", f"{slot} was sent though its gate was denied"
    is_whole = facts.run["state"] == expected.state == "completed"
    if is_whole and not (
        len(counts) == len(decided) == expected.gates and counts.total() == len(facts.approvals) - len(by_rule)
    ):
        yield "broken", f"{len(counts)} gates, {len(decided)} decisions, {len(facts.approvals)} approvals"
    unknown = {(e["slot"], e["attempt"]) for e in facts.ledger if e["fact"] == "unknown"}
    reconciled = Counter((e["slot"], e["attempt"]) for e in facts.ledger if e["fact"] == "reconciled")
    for call, times in reconciled.items():
        if times > 1 + len(_told_late(facts, call)):
            yield "duplicate", f"{call} was settled {times} times"
    attempts = Counter(entry["slot"] for entry in facts.ledger if entry["fact"] == "pending")
    denied = Counter(event["slot"] for event in denials(facts.events))
    for slot, times in attempts.items():
        if times > 1 + denied[slot]:
            yield "broken", f"{slot} was attempted {times} times with {denied[slot]} verdicts that it did not happen"
    if facts.run["state"] == "completed" and unknown - reconciled.keys() - _committed(facts):
        yield "lost", f"completed past unknown outcomes that nobody settled: {unknown}"


def _told_late(facts: Facts, call: tuple[str, int]) -> list[dict[str, Any]]:
    """Return late results saying that the call happened, after which a person may be asked again."""
    late = [event for event in facts.events if (event["slot"], event["attempt"]) == call]
    return [
        event
        for event in late
        if event["kind"] == "CallbackArrivedLate"
        or (event["kind"] == "ToolAnsweredLate" and event["data"]["outcome"] != "refused")
    ]


def _witnesses(facts: Facts) -> Iterable[tuple[Kind, str]]:
    """Check for no further attempt after a late result, unless a person denied it since."""
    said_no = denials(facts.events)
    for begun in (event for event in facts.events if event["kind"] == "ToolInvoked"):
        for attempt in range(begun["attempt"]):
            call = begun["slot"], attempt
            items = [event["seq"] for event in _told_late(facts, call) if event["seq"] < begun["seq"]]
            denied = [
                event["seq"]
                for event in said_no
                if (event["slot"], event["attempt"]) == call and event["seq"] < begun["seq"]
            ]
            if items and max(items) > max(denied, default=0):
                yield (
                    "broken",
                    f"{call} was attempted again though a witness says that it happened (event {max(items)})",
                )


def _committed(facts: Facts) -> set[tuple[str, int]]:
    return {(e["slot"], e["attempt"]) for e in facts.ledger if e["fact"] == "committed"}


# --- the budget -----------------------------------------------------------------------------------

_OUTCOMES = ("ToolRead", "CachedReadTaken", "ToolReadAnew", "ToolReturned", "ToolFailed", "ToolAccepted")
_MONEY = ("model_calls", "tokens_in", "tokens_out", "usd_micro")
COUNTED = (*_MONEY, "tool_calls")


def _budget(facts: Facts) -> Iterable[tuple[Kind, str]]:
    """Check that usage is the sum of the debits, each request is debited once, and none exceeds a cap."""
    debits = [event for event in facts.events if event["kind"] == "BudgetDebited"]
    childrens = [event["data"] for event in facts.events if event["kind"] == "ChildEnded"]
    for name in _MONEY:
        listed = sum(event["data"][name] or 0 for event in debits) + sum(data[name] for data in childrens)
        if facts.run["usage"][name] != listed:
            kind: Kind = "lost" if facts.run["usage"][name] < listed else "duplicate"
            yield kind, f"{facts.run['usage'][name]} {name} used, and debits of {listed}"
    calls = sum(event["kind"] in _OUTCOMES for event in facts.events) + sum(data["tool_calls"] for data in childrens)
    total = sum(event["kind"] == "ToolReconciled" and event["data"].get("by") == "hook" for event in facts.events)
    if not calls <= facts.run["usage"]["tool_calls"] <= calls + total:
        yield "broken", f"{facts.run['usage']['tool_calls']} tool calls used, and {calls} outcomes"
    debited = Counter(_request(event) for event in debits)
    routed = Counter(_request(event) for event in facts.events if event["kind"] == "ModelRouted")
    for request, times in debited.items():
        if times > 1:
            yield "duplicate", f"the request {request} was debited {times} times"
        elif request not in routed:
            yield "broken", f"the request {request} was debited and never went out"
    if facts.run["state"] in ENDED and (lost := routed.keys() - debited.keys()):
        yield "lost", f"requests without a debit: {sorted(lost)}"
    answered = Counter((event["slot"], event["attempt"]) for event in debits if not event["data"]["is_estimate"])
    for event in facts.events:
        if event["kind"] == "ModelResponded" and not answered[event["slot"], event["attempt"]]:
            yield "lost", f"the answer at {event['slot']} has no debit of its own"
    yield from _beyond(facts.events)


def _beyond(events: list[dict[str, Any]]) -> Iterable[tuple[Kind, str]]:
    """Find what began although usage, reservations and its own need exceeded the cap in force."""
    caps: Mapping[str, int] = {}
    used: Counter[str] = Counter()
    under_way: dict[tuple[Any, ...], Mapping[str, int]] = {}
    for event in events:
        data, call = event["data"], (event["slot"], event["attempt"])
        wanted: Mapping[str, int] = {}
        match event["kind"]:
            case "BudgetSet":
                caps = data["caps"]
            case "ToolInvoked":
                wanted = {"steps": 1, "tool_calls": 1}
            case "ModelRouted":
                wanted = {name: data.get(name) or 0 for name in _MONEY} | {"steps": 1, "model_calls": 1}
            case "ChildStarted":
                wanted = data["caps"]
            case "ChildEnded":
                under_way.pop(call, None)
                used.update({name: data[name] for name in (*COUNTED, "steps")})
            case "BudgetDebited":
                under_way.pop(call, None)
                used.update({name: data[name] or 0 for name in _MONEY})
            case "ModelResponded" | "ModelFailed":
                used["steps"] += 1
            case "ToolReconciled" | "CallbackReceived":
                under_way.pop(call, None)
            case kind if kind in _OUTCOMES:
                under_way.pop(call, None)
                used.update(steps=1, tool_calls=1)
        for name, more in wanted.items():
            aside = sum(other.get(name, 0) for at, other in under_way.items() if at != call)
            if more and name in caps and used[name] + aside + more > caps[name]:
                yield (
                    "broken",
                    f"event {event['seq']} wants {more} {name}, of {caps[name]} {used[name]} used, {aside} aside",
                )
        if wanted:
            under_way[call] = wanted


def _request(event: dict[str, Any]) -> tuple[str, int, int]:
    return event["slot"], event["attempt"], event["data"]["n"]


# --- the journal ----------------------------------------------------------------------------------


def _journal(facts: Facts) -> Iterable[tuple[Kind, str]]:
    """Check for a gapless, linked journal, one sequence of claims, and one end."""
    prev, epoch, claims = hashlib.sha256(uuid.UUID(facts.run_id).bytes).hexdigest(), 0, 0
    for n, event in enumerate(facts.events, start=1):
        if event["seq"] != n:
            yield "broken", f"event {n} is missing: the next one found is {event['seq']}"
            return
        if event["prev_hash"] != prev:
            yield "broken", f"event {n} does not link to the one before it"
        prev = event["hash"]
        if event["kind"] == "RunClaimed":
            claims += 1
            if event["epoch"] != epoch + 1:
                yield "broken", f"claim {claims} has epoch {event['epoch']} after {epoch}"
        elif event["epoch"] != epoch:
            yield "broken", f"event {n} has epoch {event['epoch']} under claim {epoch}"
        epoch = event["epoch"]
    if facts.run["epoch"] != claims:
        yield "broken", f"epoch {facts.run['epoch']} after {claims} claims"
    if facts.run["seq"] > len(facts.events):
        yield "lost", f"the head is at event {facts.run['seq']}, the journal ends at {len(facts.events)}"
    ends = [event["kind"] for event in facts.events if event["kind"] in ("RunCompleted", "RunFailed", "RunCancelled")]
    if facts.run["state"] in ENDED and len(ends) - _retries(facts) - reopenings(facts) != 1:
        yield "broken", f"{len(ends)} ends: {ends}"
    cancelled = next((event["seq"] for event in facts.events if event["kind"] == "CancelRequested"), len(facts.events))
    for event in facts.events[cancelled : _undoing(facts)]:
        if event["kind"] in ("ToolInvoked", "ToolRedispatched", "ChildStarted"):
            yield "broken", f"{event['kind']} at event {event['seq']}, after the cancel at event {cancelled}"
    facts_said = Counter((e["slot"], e["attempt"], e["fact"]) for e in facts.events if e["fact"] is not None)
    for key, times in facts_said.items():
        if times > 1:
            yield "broken", f"{key} is on record {times} times"


def _undoing(facts: Facts) -> int:
    """Return the event from which it undoes its effects, as requested."""
    return next((event["seq"] for event in facts.events if event["kind"] == "UndoBegun"), len(facts.events))


def _retries(facts: Facts) -> int:
    return sum(event["kind"] == "RunRetried" for event in facts.events)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
