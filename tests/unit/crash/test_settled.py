from __future__ import annotations

from typing import Any

from tests.cases import each_case
from tests.system.crash.checker import Facts
from tests.system.crash.settled import judge_settled

Event = dict[str, Any]


def event(seq: int, kind: str, data: dict[str, Any] | None = None, payload: Any = None, attempt: int = 0) -> Event:
    return {"seq": seq, "kind": kind, "slot": "0.1/1", "attempt": attempt, "data": data or {}, "payload": payload or {}}


def says(seq: int, by: str = "a", n: int = 0, **more: Any) -> Event:
    return event(seq, "OutcomeProposed", {"by": by, "n": n, "verdict": "happened", "question": 0} | more)


def settles(seq: int, by: str = "b", n: int | None = 0, **more: Any) -> Event:
    told = {} if n is None else {"proposal": n}
    return event(seq, "ToolReconciled", {"by": by, "verdict": "happened", "n": 0} | more, told)


UNKNOWN, NEWS = event(1, "ToolOutcomeUnknown"), event(4, "ToolAnsweredLate")
BACK = event(3, "OutcomeWithdrawn", {"n": 0})
ASKED, TOLD = event(2, "UpstreamAsked", {"n": 0}), event(3, "UpstreamTold", {"n": 0, "answer": "happened"})
NOTHING = event(4, "UpstreamTold", {"n": 0, "answer": "nothing"})


def found(*events: Event, state: str = "completed") -> list[str]:
    return [kind for kind, _ in judge_settled(Facts("r", {"state": state}, list(events), [], [], []))]


def test_what_is_as_it_should_be_is_not_found() -> None:
    assert found(UNKNOWN, says(2), settles(3)) == [] and found(UNKNOWN, settles(2, n=None)) == []
    assert found(UNKNOWN, says(2), BACK, says(4, n=1), settles(5, n=1)) == []
    assert found(UNKNOWN, says(2), NEWS, says(5, n=1), settles(6, n=1)) == []
    assert found(UNKNOWN, ASKED, TOLD, says(4), settles(5)) == []
    assert found(UNKNOWN, ASKED, TOLD, event(4, "UpstreamAsked", {"n": 1}), event(5, "UpstreamTold", {"n": 1})) == []
    assert found(UNKNOWN, says(2), event(3, "UpstreamAsked", {"n": 0}), NOTHING, settles(5)) == []
    assert found(UNKNOWN, ASKED, state="cancelled") == [] and found(UNKNOWN, ASKED, settles(3, n=None)) == []


@each_case(
    "events",
    [
        [settles(2)],  # nobody had said it
        [says(2), settles(3, by="a")],  # one person
        [says(2), settles(3, verdict="did_not")],  # another verdict
        [says(2), settles(3, n=1)],  # another word
        [says(2, question=1), settles(3)],  # another question
        [says(2), BACK, settles(4)],  # taken back
        [says(2), NEWS, settles(5)],  # news in between
        [ASKED, event(3, "UpstreamAsked", {"n": 1}), event(4, "UpstreamTold", {"n": 1})],  # asked twice
        [TOLD],  # nobody had asked
        [ASKED, event(3, "UpstreamTold", {"n": 1})],  # another's answer
        [ASKED],  # never asked
        [says(1), ASKED, TOLD, settles(4)],  # it told something in between
    ],
)
def test_what_must_not_be_is_found(events: list[Event]) -> None:
    assert found(UNKNOWN, *events)
