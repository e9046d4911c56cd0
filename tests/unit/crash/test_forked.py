"""The checker finds faults between a run and its fork."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cases import each_case
from tests.system.crash.checker import Expected, Facts
from tests.system.crash.forked import (
    AGAIN,
    FORK,
    NO,
    ON_RECORD,
    START_AGAIN,
    Asked,
    expected_of_fork,
    judge_forked,
    judge_origin,
    left_of,
)
from tests.system.crash.steps import EFFECTS
from tests.system.crash.truth import has_happened, refuted
from tests.unit.crash.test_checker import used

ASKED = Asked(FORK, 2)
Told = tuple[str, str | None, dict[str, Any]]
ONE, TWO, THREE, FOUR = "0.1/1", "0.1/2", "0.1/3", "0.1/4"


def facts_of(run_id: str, told: list[Told], *, sent: str = "", state: str = "completed") -> Facts:
    events = [
        {"seq": seq, "kind": kind, "slot": slot, "attempt": 0, "data": data, "payload": data.pop("payload", None)}
        for seq, (kind, slot, data) in enumerate(told, start=1)
    ]
    ledger = [
        {"slot": x["slot"], "attempt": 0, "fact": fact, "digest": None, "key": f"{run_id}-{x['slot']}"}
        for x in events
        if x["kind"] == "ToolInvoked"
        for fact in ("pending", "committed")
    ]
    return Facts(run_id, {"state": state, "usage": used(tool_calls=0)}, events, ledger, [], [])


def invoked(slot: str, tool: str, replay_class: str = "idempotent_with_key") -> Told:
    return "ToolInvoked", slot, {"tool": tool, "replay_class": replay_class}


def said(slot: str, decision: str, call: str) -> list[Told]:
    return [
        ("WaitOpened", slot, {"wait": "input", "payload": {"call": call}}),
        ("InputAnswered", slot, {"payload": {"answer": {"decision": decision}}}),
    ]


def begun(how: str = FORK, visit: int = 2, origin: str = "origin", at_seq: int = 3) -> Told:
    return "RunForked", None, {"origin": origin, "how": how, "visit": visit, "at_seq": at_seq}


def taken(slot: str, of_slot: str, tool: str = "later") -> Told:
    data = {"of_run": "origin", "of_slot": of_slot, "of_attempt": 0, "tool": tool, "how": "consent"}
    return "AnswerTakenOver", slot, data


def origin() -> Facts:
    return facts_of(
        "origin",
        [
            ("RunCreated", None, {}),
            invoked("0.1/0", "hooked"),
            ("VisitEntered", None, {}),
            invoked("0.2/1", "keyed"),
            invoked("0.2/2", "later"),
            ("ChildStarted", "0.2/3", {"agent": "crash-child@1.0"}),
            ("RunCompleted", None, {}),
            ("ForkMade", None, {"fork": "fork", "how": FORK, "visit": 2}),
        ],
    )


def fork() -> Facts:
    """Return a fork that repeated one call by approval, took another over, and was denied a third."""
    return facts_of(
        "fork",
        [
            ("RunCreated", None, {}),
            ("BudgetSet", None, {}),
            begun(),
            *said(ONE, AGAIN, "keyed"),
            invoked(ONE, "keyed"),
            *said(TWO, ON_RECORD, "later"),
            taken(TWO, "0.2/2"),
            *said(THREE, NO, "gated"),
            invoked("0.1/5", "hooked"),
            invoked("0.1/6", "pure", "pure"),
            ("RunCompleted", None, {}),
        ],
    )


def add(*told: Told) -> Callable[[Facts, Facts], None]:
    def spoil(made: Facts, of: Facts) -> None:
        made.events.extend(facts_of("fork", list(told)).events)
        for seq, event in enumerate(made.events, start=1):
            event["seq"] = seq

    return spoil


def drop(kind: str, slot: str | None = None) -> Callable[[Facts, Facts], None]:
    def spoil(made: Facts, of: Facts) -> None:
        made.events.remove(next(x for x in made.events if x["kind"] == kind and slot in (None, x["slot"])))

    return spoil


def told(made: Facts, kind: str) -> dict[str, Any]:
    return next(x for x in made.events if x["kind"] == kind)


def late_word(made: Facts, of: Facts) -> None:
    """Let the verdict on the first call come after it was sent."""
    told(made, "InputAnswered")["seq"] = told(made, "ToolInvoked")["seq"] + 1


def of_a_living_run(made: Facts, of: Facts) -> None:
    """Let the origin be still at work: any call may then repeat its later ones."""
    of.events.insert(3, of.events.pop())


def not_done(made: Facts, of: Facts) -> None:
    """Let the effect that was taken over be unconfirmed at the origin."""
    of.ledger[:] = [row for row in of.ledger if row["slot"] != "0.2/2" or row["fact"] == "pending"]


def test_what_is_sound_is_found_sound() -> None:
    assert list(judge_forked(fork(), origin(), ASKED)) == []
    assert list(judge_origin(origin())) == []


@each_case(
    ("kind", "spoil"),
    [
        ("duplicate", drop("InputAnswered", ONE)),
        ("duplicate", late_word),
        ("duplicate", add(invoked(FOUR, "keyed"))),
        ("duplicate", add(*said(FOUR, ON_RECORD, "later"), invoked(FOUR, "later"))),
        ("duplicate", add(("ChildStarted", FOUR, {"agent": "crash-child@2.0"}))),
        ("duplicate", of_a_living_run),
        ("broken", add(invoked(THREE, "gated"))),
        ("duplicate", add(taken(FOUR, "0.2/2"))),
        ("duplicate", add(taken(ONE, "0.2/1"))),
        ("broken", add(taken(FOUR, "0.1/0"))),
        ("broken", add(taken(FOUR, "0.2/9"))),
        ("broken", not_done),
        ("broken", lambda made, of: told(made, "AnswerTakenOver")["data"].update(of_run="another")),
        ("broken", lambda made, of: told(made, "RunForked")["data"].update(origin="another")),
        ("broken", lambda made, of: told(made, "RunForked")["data"].update(visit=1)),
        ("broken", lambda made, of: told(made, "RunForked")["data"].update(how=START_AGAIN)),
        ("broken", lambda made, of: told(made, "RunForked").update(seq=9)),
        ("broken", add(begun())),
        ("broken", drop("RunForked")),
        ("broken", lambda made, of: told(of, "ForkMade")["data"].update(visit=3)),
        ("lost", lambda made, of: told(of, "ForkMade")["data"].update(fork="another")),
        ("duplicate", lambda made, of: of.events.append(dict(of.events[-1]))),
        ("broken", lambda made, of: made.ledger[0].update(key=of.ledger[0]["key"])),
    ],
)
def test_what_is_wrong_is_found(kind: str, spoil: Callable[[Facts, Facts], Any]) -> None:
    made, of = fork(), origin()
    spoil(made, of)
    assert kind in {found for found, _ in judge_forked(made, of, ASKED)}


def test_what_undoes_its_own_effects_needs_no_word_for_that() -> None:
    made, of = fork(), origin()
    add(("UndoBegun", None, {}), invoked(FOUR, "keyed"))(made, of)
    assert list(judge_forked(made, of, ASKED)) == []


def test_a_new_start_is_asked_about_all_that_was_done() -> None:
    question = Asked(START_AGAIN, 0)
    made, of = facts_of("fork", [("RunCreated", None, {}), begun(START_AGAIN, 0, at_seq=0)]), origin()
    told(of, "ForkMade")["data"].update(how=START_AGAIN, visit=0)
    assert list(judge_forked(made, of, question)) == []
    add(invoked("0.1/1", "hooked"))(made, of)
    assert [kind for kind, _ in judge_forked(made, of, question)] == ["duplicate"]


def test_what_happens_to_a_run_after_it_had_ended_and_was_forked_is_found() -> None:
    of = origin()
    of.events.append({"seq": 9, "kind": "ToolAnsweredLate", "slot": "0.2/1", "attempt": 0, "data": {}})
    assert list(judge_origin(of)) == []
    of.events.append({"seq": 10, "kind": "RunClaimed", "slot": None, "attempt": 0, "data": {}})
    assert [kind for kind, _ in judge_origin(of)] == ["broken"]


@each_case("kind", ["ChildEnded", "CallbackReceived", "CallbackArrivedLate"])
def test_what_a_run_had_under_way_when_it_ended_may_end_after_a_fork(kind: str) -> None:
    of = origin()
    of.events.append({"seq": 9, "kind": kind, "slot": "0.2/3", "attempt": 0, "data": {}})
    assert list(judge_origin(of)) == []


@each_case("kind", ["ToolInvoked", "ToolReturned", "RunRetried", "RunReleased"])
def test_nothing_else_may(kind: str) -> None:
    of = origin()
    of.events.append({"seq": 9, "kind": kind, "slot": None, "attempt": 0, "data": {}})
    assert [kind for kind, _ in judge_origin(of)] == ["broken"]


def test_a_run_that_is_retried_has_not_ended_before_its_fork_is_made() -> None:
    of = origin()
    end, fork_made = of.events[-2:]
    retried = [("RunFailed", None, {}), ("RunRetried", None, {}), ("RunClaimed", None, {}), invoked("0.2/4", "keyed")]
    of.events[-2:] = [*facts_of("origin", retried).events, end, fork_made]
    assert list(judge_origin(of)) == []
    of.events[-2:] = [fork_made, end]  # made during its work: its later events are its own business
    assert list(judge_origin(of)) == []


def verdict(slot: str, word: str, attempt: int = 0) -> dict[str, Any]:
    return {"kind": "ToolReconciled", "slot": slot, "attempt": attempt, "data": {"verdict": word}}


def test_what_somebody_says_has_not_happened_may_be_done_again_unasked() -> None:
    made, of = fork(), origin()
    drop("InputAnswered", ONE)(made, of)
    assert [kind for kind, _ in judge_forked(made, of, ASKED)] == ["duplicate"]
    next(row for row in of.ledger if row["slot"] == "0.2/1" and row["fact"] == "committed")["fact"] = "reconciled"
    assert [kind for kind, _ in judge_forked(made, of, ASKED)] == ["duplicate"]
    of.events.append(verdict("0.2/1", "did_not") | {"seq": 9})
    assert list(judge_forked(made, of, ASKED)) == []


def test_an_effect_without_a_key_is_there_if_there_is_one_more_than_is_accounted_for() -> None:
    """One sent and committed, one reconciled, one unknown; the ledger has no verdicts."""
    mail: dict[str, Any] = {"attempt": 0, "tool": "email.send", "key": None}
    facts = {ONE: ("pending", "committed"), TWO: ("pending", "reconciled"), THREE: ("pending",)}
    ledger = [mail | {"slot": slot, "fact": fact} for slot, found in facts.items() for fact in found]
    sent = {"operation": "email.send", "idempotency_key": None, "executed": True}
    said_no, said_yes = [verdict(TWO, "did_not")], [verdict(TWO, "happened"), verdict(TWO, "did_not", attempt=1)]
    assert refuted(said_no) == {(TWO, 0)} and refuted(said_yes) == {(TWO, 1)}
    for said_of_two, effects, is_done in [
        (said_no, [sent], False),
        (said_no, [sent] * 2, True),
        (said_no, [sent, sent | {"executed": False}], False),
        (said_yes, [sent] * 2, False),
        (said_yes, [sent] * 3, True),
    ]:
        assert has_happened(THREE, 0, ledger, said_of_two, effects) is is_done


def test_what_a_fork_does_is_its_job_from_there_without_what_stands_for_calls_and_what_was_refused() -> None:
    rest = Expected({"erp.create_vendor": 3, "portal.request_w9": 1}, gates=1, children=1)
    found = expected_of_fork(fork(), rest)
    assert (dict(found.effects), found.gates, found.children) == (
        {"erp.create_vendor": 2, "portal.request_w9": 0},
        0,
        1,
    )
    made = fork()
    add(taken(FOUR, "0.2/3", "child"))(made, origin())
    assert expected_of_fork(made, rest).children == 0


def test_who_takes_what_is_on_record_after_a_gate_has_passed_that_gate() -> None:
    """It was changed at its gate, asked again whether it may be repeated, and took the old result."""
    took = ("AnswerTakenOver", ONE, {"tool": "changed", "of_slot": ONE})
    values = ("ApprovalRequested", ONE, {"approval_id": "a", "tool": "changed"})
    rest = Expected({EFFECTS["changed"]: 1}, gates=1)
    for told_, gates in (([begun(), took], 0), ([begun(), values, took], 1)):
        found = expected_of_fork(facts_of("fork", told_), rest)
        assert (found.gates, set(found.effects.values())) == (gates, {0})


def test_a_visit_begins_after_the_hops_before_it() -> None:
    steps = ("keyed", "hop", "pure", "hop", "later")
    assert [left_of(steps, visit) for visit in (0, 1, 2, 3)] == [steps, steps, steps[2:], steps[4:]]
