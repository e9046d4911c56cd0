"""The judge of keys and schedules finds what is wrong, and nothing where all is well."""

from __future__ import annotations

from typing import Any

from tests.cases import each_case
from tests.system.crash.turns import judge_key, judge_schedule


def run(n: int, **changed: Any) -> dict[str, Any]:
    """The nth run of a key: it began a second after the one before had ended."""

    def at(second: int) -> str:
        return f"2026-11-22T10:{n:02d}:{second:02d}.000000Z"

    return {
        "id": f"run {n}",
        "state": "completed",
        "epoch": 1,
        "queued_behind": None,
        "created_at": f"2026-11-22T09:00:{n:02d}.000000Z",
        "started_at": at(1),
        "ended_at": at(59),
    } | changed


FIRED = {"outcome": "started", "run_id": "run 1", "planned_at": "2026-11-22T10:00:00Z"}
NEVER = {"state": "cancelled", "started_at": None, "epoch": 0}


def test_one_after_the_other_is_well_also_where_one_never_began() -> None:
    assert list(judge_key([run(3), run(1), run(2, **NEVER)])) == []
    assert list(judge_schedule({"id": "s", "last": [FIRED]}, [run(1)])) == []


@each_case(
    ("runs", "kind"),
    [
        ([run(1, ended_at="2026-11-22T10:02:30.000000Z"), run(2)], "duplicate"),
        ([run(1, ended_at=None), run(2)], "duplicate"),
        ([run(1), run(2, state="pending", started_at=None, epoch=0, ended_at=None)], "stuck"),
        (
            [run(1, started_at="2026-11-22T10:03:00.000000Z", ended_at="2026-11-22T10:04:00.000000Z"), run(2)],
            "duplicate",
        ),
    ],
)
def test_whoever_begins_out_of_turn_or_never_is_found(runs: list[dict[str, Any]], kind: str) -> None:
    assert [found.kind for found in judge_key(runs)] == [kind]


@each_case(
    ("last", "runs", "kinds"),
    [
        ([], [], ["lost"]),
        ([FIRED], [run(1), run(2)], ["duplicate"]),
        ([FIRED, FIRED], [run(1), run(2)], ["duplicate"]),
        ([FIRED], [run(2)], ["broken"]),
        ([], [run(1)], ["lost", "duplicate"]),
    ],
)
def test_a_schedule_that_starts_none_or_two_is_found(
    last: list[Any], runs: list[dict[str, Any]], kinds: list[str]
) -> None:
    assert [found.kind for found in judge_schedule({"id": "s", "last": last}, runs)] == kinds
