"""The checker finds faults in starts under a ramp."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cases import each_case
from tests.system.crash.checker import Facts
from tests.system.crash.released import Released, judge_released

T0 = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = "1.0.0", "2.0.0"


def at(seconds: int) -> datetime:
    return T0 + timedelta(seconds=seconds)


def start(run: str, seconds: int, *, key: str = "k", share: int = 0, place: int = 0) -> tuple[Any, Facts, Any]:
    """Return a start at a place on a ramp with this share; share 0 is before the ramp."""
    is_new = place < share
    version = NEW if is_new else OLD
    answer = {
        "ramp": 1,
        "from_version": OLD,
        "to_version": NEW,
        "is_new": is_new,
        "why": "share",
        "share": share,
        "place": place,
        "key": "idempotency_key",
    }
    events = [{"seq": 1, "kind": "RunCreated", "data": {"version": version}}]
    if share:
        events.append({"seq": 2, "kind": "VersionAssigned", "data": answer})
    fields = {
        "run": run,
        "version": version,
        "graph_id": f"a@{version}",
        "key": key,
        "created_at": at(seconds).isoformat(),
    }
    row = {"run": run, "ramp": 1, "is_new": is_new, "why": "share", "place": place}
    return fields, Facts(run, {"state": "completed"}, events, [], [], []), row if share else None


def good() -> tuple[Released, dict[str, Facts]]:
    """Return one start before the ramp, three while its share is raised, one after."""
    every = [
        start("before", 1),
        start("first", 11, key="x", share=3000, place=5000),
        start("over", 12, share=3000, place=20),
        start("moved", 16, key="x", share=6000, place=5000),
        start("after", 31),
    ]
    ramp = {
        "id": 1,
        "from_version": OLD,
        "to_version": NEW,
        "made_at": at(10),
        "ended_at": at(30),
        "share": 0,
        "shares": [3000, 6000, 0],
    }
    rows = [row for *_, row in every if row is not None]
    return Released([ramp], [found for found, *_ in every], rows), {found["run"]: facts for found, facts, _ in every}


def said(facts: dict[str, Facts], run: str) -> Any:
    return facts[run].events[1]["data"]


def test_what_is_sound_is_found_sound() -> None:
    released, facts = good()
    assert list(judge_released(released, facts, [*facts])) == []


def test_a_run_that_was_moved_on_record_is_where_it_was_moved_to() -> None:
    released, facts = good()
    facts["before"].events.append({"seq": 9, "kind": "RunMigrated", "data": {"of": f"a@{OLD}", "to": f"a@{NEW}"}})
    released.starts[0].update(version=NEW, graph_id=f"a@{NEW}")  # type: ignore[attr-defined]
    assert list(judge_released(released, facts, [*facts])) == []


def _back(released: Any, facts: dict[str, Facts]) -> None:
    """Let the key that moved come out on the older side again."""
    found, again, row = start("back", 18, key="x", share=6000, place=5000)
    said({"back": again}, "back").update(is_new=False)
    again.events[0]["data"]["version"] = OLD
    found.update(version=OLD, graph_id=f"a@{OLD}")
    row.update(is_new=False)
    released.starts.append(found)
    released.rows.append(row)
    facts["back"] = again


@each_case(
    ("kind", "spoil"),
    [
        ("broken", lambda r, f: r.starts[2].update(version=OLD, graph_id=f"a@{OLD}")),
        ("broken", lambda r, f: said(f, "over").update(is_new=False)),
        ("broken", lambda r, f: said(f, "over").update(share=4000)),
        ("broken", lambda r, f: said(f, "over").update(place=10_000)),
        ("broken", lambda r, f: said(f, "over").update(ramp=7)),
        ("broken", lambda r, f: said(f, "moved").update(place=5001)),
        ("broken", lambda r, f: f["over"].events.append(f["over"].events[1])),
        ("broken", lambda r, f: r.starts[1].update(created_at=at(31).isoformat())),
        ("broken", lambda r, f: r.starts[0].update(created_at=at(11).isoformat())),
        ("broken", lambda r, f: r.rows[0].update(is_new=True)),
        (
            "broken",
            lambda r, f: r.rows.append({"run": "nobody", "ramp": 1, "is_new": True, "why": "share", "place": 1}),
        ),
        ("lost", lambda r, f: r.rows.pop()),
        ("lost", lambda r, f: r.starts.pop()),
        ("broken", _back),
    ],
)
def test_what_is_wrong_is_found(kind: str, spoil: Callable[[Any, Any], Any]) -> None:
    released, facts = good()
    acknowledged = [*facts]
    spoil(released, facts)
    assert kind in {found.kind for found in judge_released(released, facts, acknowledged)}
