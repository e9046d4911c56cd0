"""A worker is killed at every point of the step protocol, for every kind of call; the sandbox is the judge.

The promises: the run resumes by itself; a pure call may repeat; a keyed call has one effect,
under one key with the same bytes; an unsafe call is never resent unless a person says that it did not happen; people
are asked once.
"""

from __future__ import annotations

import pytest

from tests.system.crash.stack import Stack

KINDS = ("pure", "keyed", "later", "gated", "unsafe")
# Commits of a run of one call: the kind, its number since the points were armed, and the wait after which they are.
COMMITS = [
    ("pure", "visit", 1, ""),
    ("pure", "result", 2, ""),
    ("keyed", "intent", 2, ""),
    ("keyed", "result", 3, ""),
    ("later", "intent", 2, ""),
    ("later", "acceptance", 3, ""),
    ("later", "park", 4, ""),
    ("gated", "gate", 2, ""),
    ("gated", "park", 3, ""),
    ("gated", "intent", 1, "approval"),
    ("gated", "result", 2, "approval"),
    ("unsafe", "intent", 2, ""),
    ("unsafe", "result", 3, ""),
]


def crash(
    stack: Stack, steps: tuple[str, ...], *points: str, after: str = "", is_held: bool = False
) -> tuple[str, list[str]]:
    """Run these steps with the points armed (once the run waits for `after`, if given); return run id and verdicts.

    `is_held`: the portal calls back only when the run waits, not perhaps before the crash. Asserts that every point
    acted, the run ended by itself, and the checker found nothing.
    """
    if is_held or after == "webhook":
        stack.hold_callbacks()
    if not after:
        stack.arm(*points)
    run_id = stack.run(*steps)
    if after or is_held:
        stack.waits(run_id, after or "webhook")
    if after:
        stack.arm(*points)
    stack.let_callbacks_go()
    verdicts = stack.play(run_id)
    assert stack.acted() == list(points)
    assert stack.judged(run_id, *steps) == []
    return run_id, verdicts


def sent(stack: Stack, run_id: str) -> list[bool]:
    """Return for each request of the run meant to have an effect whether it had it."""
    reads = ("lookup", "find_vendor")
    return [row["executed"] for row in stack.api.effects(run_id) if row["operation"] not in reads]


# --- before anything is sent ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_killed_between_claim_and_load_nothing_has_happened_and_another_worker_goes_on(stack: Stack, kind: str) -> None:
    run_id, verdicts = crash(stack, (kind,), "CP0:kill:1")
    assert verdicts == []
    lost = [event for event in stack.api.events(run_id) if event["kind"] == "WorkerLost"]
    assert [event["data"]["is_counted"] for event in lost] == [True]
    assert len(sent(stack, run_id)) == (kind != "pure")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pure"])
def test_killed_before_the_intent_nobody_is_asked_what_happened(stack: Stack, kind: str) -> None:
    run_id, verdicts = crash(stack, (kind,), f"CP1@{kind}:kill:1")
    assert verdicts == []
    assert sent(stack, run_id) == [True]


@pytest.mark.parametrize("kind", KINDS)
def test_killed_between_intent_and_first_byte_only_an_unsafe_call_needs_a_person(stack: Stack, kind: str) -> None:
    run_id, verdicts = crash(stack, (kind,), f"CP2@{kind}:kill:1")
    assert verdicts == (["did_not"] if kind == "unsafe" else [])
    assert sent(stack, run_id) == ([] if kind == "pure" else [True])


# --- sent, and not recorded -----------------------------------------------------------------------


@pytest.mark.parametrize("point", ["CP3", "CP4"])
@pytest.mark.parametrize("kind", KINDS)
def test_killed_between_effect_and_record_the_effect_stays_single(stack: Stack, kind: str, point: str) -> None:
    run_id, verdicts = crash(stack, (kind,), f"{point}@{kind}:kill:1", is_held=kind == "later")
    assert verdicts == (["happened"] if kind == "unsafe" else [])
    match kind:
        case "pure":
            assert len(stack.api.effects(run_id)) == 2
        case "unsafe":
            assert sent(stack, run_id) == [True]
        case _:
            assert sent(stack, run_id) == [True, False]


@pytest.mark.parametrize("point", ["CP2", "CP3", "CP4"])
def test_a_keyed_call_that_can_be_asked_about_is_sent_again_only_if_it_is_not_there(stack: Stack, point: str) -> None:
    run_id, verdicts = crash(stack, ("hooked",), f"{point}@hooked:kill:1")
    assert verdicts == []
    assert sent(stack, run_id) == [True]
    settled = [event for event in stack.api.events(run_id) if event["kind"] == "ToolReconciled"]
    assert [event["data"]["by"] for event in settled] == ([] if point == "CP2" else ["hook"])


@pytest.mark.parametrize("point", ["CP2", "CP3"])
def test_an_unsafe_call_that_can_be_asked_about_needs_no_person(stack: Stack, point: str) -> None:
    run_id, verdicts = crash(stack, ("unsafe_hooked",), f"{point}@unsafe_hooked:kill:1")
    assert verdicts == []
    assert sent(stack, run_id) == [True]


def test_a_second_attempt_after_a_verdict_needs_no_second_approval(stack: Stack) -> None:
    run_id, verdicts = crash(stack, ("unsafe_gated",), "CP2@unsafe_gated:kill:1")
    assert verdicts == ["did_not"]
    assert [event["attempt"] for event in stack.api.events(run_id) if event["kind"] == "ToolInvoked"] == [0, 1]


@pytest.mark.parametrize("point", ["CP2@model", "CP4@model", "CP4@keyed", "CP6@model"])
def test_a_loop_of_a_model_goes_on_where_it_was(stack: Stack, point: str) -> None:
    run_id, verdicts = crash(stack, ("think",), f"{point}:kill:1")
    assert verdicts == []
    turns = [event["data"]["turn"] for event in stack.api.events(run_id) if event["kind"] == "ModelResponded"]
    assert turns == [0, 1]


# --- the commit, and after it ---------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "commit", "nth", "after"), COMMITS)
def test_killed_while_a_commit_is_under_way_either_outcome_is_right(
    stack: Stack, kind: str, commit: str, nth: int, after: str
) -> None:
    run_id, verdicts = crash(stack, (kind,), f"CP5:kill:{nth}", after=after)
    assert sum(sent(stack, run_id)) == (kind != "pure")
    if kind == "unsafe":
        # The database may or may not have committed it; what is unknown after that, a person was asked about.
        assert verdicts in ([], ["did_not" if commit == "intent" else "happened"])
    else:
        assert verdicts == []


@pytest.mark.parametrize("kind", KINDS)
def test_killed_after_the_record_the_call_is_not_made_again(stack: Stack, kind: str) -> None:
    # A call answered later is recorded when the callback comes, and the next claim follows.
    point, after = ("CP0:kill:1", "webhook") if kind == "later" else (f"CP6@{kind}:kill:1", "")
    run_id, verdicts = crash(stack, (kind,), point, after=after)
    assert verdicts == []
    assert sent(stack, run_id) == ([] if kind == "pure" else [True])


@pytest.mark.parametrize("kind", KINDS)
def test_killed_after_a_checkpoint_the_run_goes_on_from_it(stack: Stack, kind: str) -> None:
    # Entering the first visit commits too; kinds that wait in between are armed then.
    after = {"later": "webhook", "gated": "approval"}.get(kind, "")
    run_id, verdicts = crash(stack, (kind, "hop", "pure"), f"CP7:kill:{1 if after else 2}", after=after)
    assert verdicts == []
    assert sent(stack, run_id) == ([] if kind == "pure" else [True])


@pytest.mark.parametrize("kind", KINDS)
def test_killed_while_parking_the_run_parks_again(stack: Stack, kind: str) -> None:
    run_id, verdicts = crash(stack, (kind, "gated"), "CP8:kill:1")
    assert verdicts == []
    assert all(sent(stack, run_id))


@pytest.mark.parametrize("kind", KINDS)
def test_killed_between_decision_and_claim_another_worker_takes_it_up(stack: Stack, kind: str) -> None:
    run_id, verdicts = crash(stack, (kind, "gated"), "CP9:kill:1", after="approval")
    assert verdicts == []
    assert all(sent(stack, run_id))


# --- crash during recovery ------------------------------------------------------------------------

PAIRS = [
    ("pure", "CP0", "CP0"),
    ("pure", "CP3@pure", "CP6@pure"),
    ("keyed", "CP2@keyed", "CP2@keyed"),
    ("keyed", "CP3@keyed", "CP4@keyed"),
    ("hooked", "CP3@hooked", "CP3@hooked"),  # the second time while the hook asks
    ("later", "CP4@later", "CP8"),
    ("gated", "CP8", "CP4@gated"),
    ("unsafe", "CP1@unsafe", "CP6@unsafe"),
    ("unsafe", "CP2@unsafe", "CP8"),  # the unknown outcome is recorded, and the person not yet asked
    ("unsafe", "CP4@unsafe", "CP0"),
    ("unsafe_hooked", "CP3@unsafe_hooked", "CP0"),
]


@pytest.mark.parametrize(("kind", "first", "second"), PAIRS)
def test_killed_again_while_recovering_the_promises_hold(stack: Stack, kind: str, first: str, second: str) -> None:
    run_id, verdicts = crash(stack, (kind,), f"{first}:kill:1", f"+{second}:kill:1", is_held=kind == "later")
    fields = {"CP2@unsafe": ["did_not"], "CP4@unsafe": ["happened"]}
    assert verdicts == fields.get(first, [])
    assert sum(sent(stack, run_id)) == (kind != "pure")
