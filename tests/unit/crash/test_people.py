"""The judges of approvals find faults, and none in good records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.cases import each_case
from tests.system.crash.changed import judge_call
from tests.system.crash.granted import judge_again, lapsed
from tests.system.crash.late import judge_question
from tests.system.crash.policed import QUEUE, RULE, Turn, asked_by_rule, judge_policed
from tests.system.crash.settled import judge_settled
from tests.system.crash.staged import _case
from tests.system.crash.steps import STAGES
from tests.unit.crash.journals import Event, at, facts_of, numbered, told

# --- calls that people change ---


def asked(n: int, queue: str = "finance_po", requested: str = "r") -> Event:
    return told("ApprovalRequested", approval_id=str(n), queue=queue, requested_hash=requested)


def changed(n: int, to: int | None = None) -> Event:
    return told("PlanAmended", approval_id=str(n), next=str(n + 1 if to is None else to))


def decided(n: int, verdict: str = "approved", by: str = "user:fiona") -> Event:
    return told("ApprovalDecided", approval_id=str(n), verdict=verdict, by=by)


def sent(executed: str = "r", requested: str = "r") -> Event:
    return told("ToolInvoked", executed_hash=executed, requested_hash=requested)


def inquiry(n: int, kind: str = "InquiryMade") -> Event:
    return told(kind, approval_id="0", n=n, to="ira", outcome="answered")


def handed(n: int, kind: str = "ApprovalDelegated") -> Event:
    return told(kind, approval_id="0", n=n, to="handed-0")


CHANGED = [asked(0), changed(0), asked(1)]
ANSWERED, BACK, BY_THEM = inquiry(0, "InquiryEnded"), handed(0, "DelegationEnded"), decided(0, by="user:handed-0")


@each_case(
    ("events", "is_sound"),
    [
        ([asked(0), decided(0), sent()], True),
        ([*CHANGED, decided(1), sent("x")], True),
        ([*CHANGED, changed(1), asked(2), decided(2), sent("y")], True),
        ([*CHANGED, decided(1), asked(2, "legal"), decided(2), sent("x")], True),  # by a policy
        ([*CHANGED, decided(1), asked(2), decided(2), sent()], True),  # asked again without the change
        ([*CHANGED, decided(1, "rejected")], True),
        ([asked(0)], True),
        (CHANGED, True),
        ([*CHANGED, decided(1), sent()], False),  # the node's own arguments
        ([asked(0), decided(0), sent("x")], False),
        ([*CHANGED, decided(0), decided(1), sent("x")], False),  # decided, and changed
        ([*CHANGED, changed(0, 2), asked(2), decided(2), sent("x")], False),
        ([asked(0), changed(0), decided(1), sent("x")], False),
        ([asked(0), changed(0), decided(0), asked(1)], False),
        ([*CHANGED, sent("x")], False),
        ([*CHANGED, decided(1, "rejected"), sent("x")], False),
        ([*CHANGED, decided(1), sent("x", "q")], False),
        ([sent()], False),
        ([asked(0), sent()], False),
        # Inquiries and delegations.
        ([asked(0), inquiry(0), ANSWERED, inquiry(1), decided(0), sent()], True),
        ([asked(0), handed(0), BY_THEM, sent()], True),
        ([asked(0), handed(0), BACK, handed(1), BY_THEM, sent()], True),
        ([asked(0), handed(0), decided(0), sent()], True),
        ([asked(0), ANSWERED], False),
        ([asked(0), inquiry(0), ANSWERED, ANSWERED], False),
        ([asked(0), BY_THEM], False),
        ([asked(0), handed(0), BACK, BY_THEM], False),
        ([asked(0), handed(0), BACK, BACK], False),
        ([asked(0), decided(0), inquiry(0)], False),
    ],
)
def test_a_changed_call_that_may_not_be_is_found(events: list[Event], is_sound: bool) -> None:
    assert (list(judge_call(numbered(events))) == []) is is_sound


# --- calls under a standing approval ---


def again(slot: str, n: int = 0) -> Event:
    fields = {"approval_id": f"{slot}.{n}", "tool": "again", "queue": "finance_po", "requested_hash": "x"}
    return told("ApprovalRequested", slot=slot, **fields)


def yes(slot: str, n: int = 0, **standing: Any) -> Event:
    fields = {"approval_id": f"{slot}.{n}", "verdict": "approved", "by": "user:a"}
    return told("ApprovalDecided", slot=slot, payload={"standing": standing or None}, **fields)


def went_out(slot: str) -> Event:
    return told("ToolInvoked", slot=slot, executed_hash="x", requested_hash="x", grant=slot)


GIVEN = [again("a"), yes("a", again={"times": 2}), went_out("a")]
USED = [again("b"), yes("b", grant=7, use=1), went_out("b")]
TAKEN_BACK = [again("c"), yes("c", grant=7, use=2), again("c", 1), yes("c", 1), went_out("c")]


@each_case(
    ("events", "is_sound"),
    [
        ([*GIVEN, *USED, again("c"), yes("c", grant=7, use=2), went_out("c")], True),
        ([*GIVEN, *USED, *TAKEN_BACK], True),
        ([*USED], False),  # nobody gave it
        ([*GIVEN, *USED, again("c"), yes("c", grant=7, use=1), went_out("c")], False),  # the same use twice
        ([*GIVEN, *USED, again("c"), yes("c", grant=7, use=3)], False),  # beyond its terms
        ([*GIVEN, again("b"), went_out("b")], False),  # sent without an approval
        ([*GIVEN, again("b"), yes("b", grant=7, use=1), again("b", 1), went_out("b")], False),  # by a lapsed one
    ],
)
def test_a_use_of_a_standing_approval_that_may_not_be_is_found(events: list[Event], is_sound: bool) -> None:
    assert (list(judge_again(facts_of(events))) == []) is is_sound


def test_an_approval_lapses_only_where_a_grant_gave_it() -> None:
    assert lapsed(numbered([*GIVEN, *USED, *TAKEN_BACK])) == {"c": 1}
    assert lapsed(numbered([again("a"), yes("a"), again("a", 1)])) == {}


# --- questions without an answer in time ---


def put(tool: str = "further", word: str | None = "escalate") -> list[Event]:
    """Return a question with a deadline of a second."""
    question = timed("ApprovalRequested", 0, tool=tool, queue="finance_po", deadline=at(1).isoformat())
    return [question, *([timed("ApprovalTimed", 0, on_timeout=word)] if word else [])]


def timed(kind: str, seconds: float, **data: Any) -> Event:
    return told(kind, seconds, approval_id="a", **data)


def went(seconds: float = 1.2, to: str = "legal", until: float = 61) -> Event:
    return timed("ApprovalEscalated", seconds, to=to, deadline=at(until).isoformat())


def reminded(seconds: float = 1.1, until: float = 61) -> Event:
    return timed("ApprovalReminded", seconds, cause="no_deadline", deadline=at(until).isoformat())


def ended(seconds: float, verdict: str = "approved", role: str = "approver_finance", by: str = "user:x") -> Event:
    return timed("ApprovalDecided", seconds, verdict=verdict, role=role, by=by)


EXPIRED, LEGAL = ended(70, "expired", "system", "system:sweeper"), "approver_legal"
PATIENT = put("patient", "remind")


@each_case(
    ("events", "is_sound"),
    [
        (put(), True),
        ([*put(), ended(0.5)], True),
        ([*put(), ended(1.1)], True),  # between its deadline and the sweep
        ([*put(), went(), ended(3)], True),
        ([*put(), went(), ended(3, role=LEGAL)], True),
        ([*put(), went(), EXPIRED], True),
        ([*put(), ended(0.5, "rejected")], True),
        ([*PATIENT, reminded(), reminded(62, 190), ended(500)], True),
        (put(word=None), True),  # asked again, once an approval had lapsed
        ([*put(word=None), EXPIRED], True),
        ([*put(), EXPIRED], False),
        ([*PATIENT, EXPIRED], False),
        ([*PATIENT, reminded(), EXPIRED], False),
        ([*put(), ended(0.5, role=LEGAL)], False),
        ([*put(), ended(1.1, role=LEGAL), went()], False),
        ([*put(), went(0.5), ended(3)], False),
        ([*put(), went(to="board")], False),
        ([*put(), went(), went(62, until=122)], False),
        ([*put(), went(until=1.2)], False),
        ([*put(), went(), ended(70, "expired", "system")], False),
        ([*put(), ended(0.5), ended(0.6)], False),
        ([*put(), ended(0.5), went()], False),
        ([*put(), reminded()], False),
        ([*PATIENT, went()], False),
        ([*PATIENT, reminded(), reminded(30, 90)], False),
        ([*PATIENT, reminded(0.5)], False),
        ([*put(), timed("ApprovalTimed", 2, on_timeout="escalate")], False),
        (put(word="remind"), False),
    ],
)
def test_a_late_answer_that_may_not_be_is_found(events: list[Event], is_sound: bool) -> None:
    question, *_ = events = numbered(events)
    assert (list(judge_question(question, events)) == []) is is_sound


# --- calls that several people decide ---


def stage(n: int, stage: int, *voters: int, verdict: str = "approved", demanded: bool = False) -> list[Event]:
    queue, quorum = STAGES[stage]
    votes = [
        told("ApprovalVoted", n=n, approval_id=str(n), by=f"user:{x}", person=x, principal=None, verdict="approve")
        for x in voters or tuple(10 * n + voter for voter in range(quorum))
    ]
    return [
        told("ApprovalRequested", n=n, approval_id=str(n), queue=queue, tool="staged"),
        *([told("PolicyApplied", effect="require", queues=["legal"])] if demanded else []),
        *votes,
        told("ApprovalDecided", n=n, approval_id=str(n), verdict=verdict),
    ]


SENT = [told("ToolInvoked")]
FIRST = [stage(0, 0), stage(1, 1)]
REJECTED = [stage(0, 0), stage(1, 1, verdict="rejected"), stage(2, 0, demanded=True), stage(3, 1)]


@each_case(
    ("parts", "is_sound"),
    [
        ([*FIRST, SENT], True),
        ([*FIRST, stage(2, 0, 0, demanded=True), stage(3, 1, 10, 11), SENT], True),  # by the same people
        ([stage(0, 1), stage(1, 0), SENT], False),
        ([stage(0, 0), SENT], False),
        ([stage(0, 0), stage(1, 1, 5), SENT], False),
        ([stage(0, 0), stage(1, 1, 0, 5), SENT], False),
        ([*FIRST, stage(2, 0), stage(3, 1), SENT], False),  # nobody demanded it
        ([*FIRST, stage(2, 0, demanded=True), SENT], False),
        ([*FIRST, stage(2, 0, demanded=True), stage(3, 0), SENT], False),
        ([*REJECTED, SENT], False),
        (REJECTED, False),
        ([*FIRST, stage(2, 0, demanded=True), stage(3, 1, 20, 6), SENT], False),
        ([SENT, *FIRST], False),
        ([SENT, stage(0, 0)], False),
    ],
)
def test_a_call_without_all_its_stages_is_found(parts: list[list[Event]], is_sound: bool) -> None:
    events = numbered(x for part in parts for x in part)
    questions = [x for x in events if x["kind"] == "ApprovalRequested"]
    assert (list(_case("0.1/1", questions, events)) == []) is is_sound


# --- calls that a policy asks about ---

TURN = Turn(at(0), at(1), requires=True, tool="keyed")


def story(
    *, verdict: str = "approved", effect: str = "require", left: float = 5, tool: str = "keyed", queue: str = QUEUE
) -> list[Event]:
    return numbered(
        [
            told("ApprovalRequested", 2, approval_id="a", queue=queue, rule=RULE, tool=tool),
            told("ApprovalDecided", 3, approval_id="a", verdict=verdict),
            told("ToolInvoked", left, tool=tool, grant="0.1/1"),
            told("PolicyApplied", left, effect=effect),
        ]
    )


def policed(events: list[Event], turns: list[Turn], manner: str = "whole") -> bool:
    return list(judge_policed(events, turns, {"a": [manner]})) == []


@each_case(
    ("events", "is_sound"),
    [
        (story(), True),
        (story(verdict="rejected"), False),
        (story(queue="finance_po"), False),
        (story(effect="allow"), False),
        (story(effect="deny"), False),
        (story()[:3], False),
        (story()[2:], False),
        ([*story(), told("ToolRedispatched", 6, tool="keyed") | {"seq": 9}], False),
        # Calls sent before or during the change, or of another tool, needed none.
        (story(left=-1)[2:3], True),
        (story(left=0.5)[2:3], True),
        (story(tool="pure")[2:3], True),
    ],
)
def test_a_call_without_what_a_policy_demands_is_found(events: list[Event], is_sound: bool) -> None:
    assert policed(events, [TURN]) is is_sound


def test_a_retired_policy_demands_nothing_and_only_its_own_questions_are_its() -> None:
    assert policed(story()[2:3], [TURN, Turn(at(3), at(4), requires=False, tool="keyed")])
    own = told("ApprovalRequested", 2, approval_id="b", queue=QUEUE, rule="Legal reads every contract.", tool="keyed")
    assert asked_by_rule([own, *story()]) == {"a"}


@each_case(
    ("proof", "manner", "is_enough"),
    [
        ("", "key", True),
        ("fresh", "password", True),
        ("factor typed", "whole", True),
        ("typed", "stale", True),
        ("fresh", "stale", False),
        ("fresh", "key", False),
        ("factor", "password", False),
        ("typed", "blank", False),
        ("fresh typed", "blank", False),
    ],
)
def test_a_call_on_an_approval_that_showed_too_little_is_found(proof: str, manner: str, is_enough: bool) -> None:
    turn = replace(TURN, proof=proof)
    assert policed(story(), [turn], manner) is is_enough
    assert list(judge_policed(story(), [turn], {})), "nobody said it"


# --- outcomes that two people settle ---


def says(by: str = "a", n: int = 0, **more: Any) -> Event:
    return told("OutcomeProposed", **{"by": by, "n": n, "verdict": "happened", "question": 0} | more)


def settles(by: str = "b", n: int | None = 0, **more: Any) -> Event:
    payload = {} if n is None else {"proposal": n}
    return told("ToolReconciled", payload=payload, **{"by": by, "verdict": "happened", "n": 0} | more)


def upstream(n: int, answer: str | None = None) -> Event:
    return told("UpstreamAsked", n=n) if answer is None else told("UpstreamTold", n=n, answer=answer)


NEWS, WITHDRAWN = told("ToolAnsweredLate"), told("OutcomeWithdrawn", n=0)
ASKED, TOLD = upstream(0), upstream(0, "happened")


@each_case(
    ("events", "is_sound"),
    [
        ([says(), settles()], True),
        ([settles(n=None)], True),
        ([says(), WITHDRAWN, says(n=1), settles(n=1)], True),
        ([says(), NEWS, says(n=1), settles(n=1)], True),
        ([ASKED, TOLD, says(), settles()], True),
        ([ASKED, TOLD, upstream(1), upstream(1, "happened")], True),
        ([says(), ASKED, upstream(0, "nothing"), settles()], True),
        ([ASKED, settles(n=None)], True),
        ([settles()], False),  # nobody had proposed it
        ([says(), settles(by="a")], False),  # one person
        ([says(), settles(verdict="did_not")], False),  # another verdict
        ([says(), settles(n=1)], False),  # another proposal
        ([says(question=1), settles()], False),  # another question
        ([says(), WITHDRAWN, settles()], False),
        ([says(), NEWS, settles()], False),
        ([ASKED, upstream(1), upstream(1, "happened")], False),  # asked twice
        ([TOLD], False),  # nobody had asked
        ([ASKED, upstream(1, "happened")], False),  # another's answer
        ([ASKED], False),  # never answered
        ([says(), ASKED, TOLD, settles()], False),  # news in between
    ],
)
def test_a_settlement_that_may_not_be_is_found(events: list[Event], is_sound: bool) -> None:
    assert (list(judge_settled(facts_of([told("ToolOutcomeUnknown"), *events]))) == []) is is_sound


def test_a_cancelled_run_owes_no_answer() -> None:
    assert list(judge_settled(facts_of([ASKED], "cancelled"))) == []
