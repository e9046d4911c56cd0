"""A run's timeline is folded from its journal and shows nothing else."""

from __future__ import annotations

from datetime import timedelta

from ledger import events as e
from runs.engine.gating.fields import NO_TOOL
from runs.story import Effect, Row, Story
from runs.story.scale import place
from tests.cases import each_case
from tests.integration.console.tape import NOON, Tape


def begun() -> Tape:
    return Tape().created().claimed().visit("intake")


def only(story: Story) -> Effect:
    (effect,) = story.effects.all()
    return effect


def rows(story: Story, kind: str) -> list[Row]:
    return [row for row in story.timeline.rows if row.kind == kind]


def test_an_empty_journal_has_a_story_too() -> None:
    story = Tape().story()
    assert story.node == "" and story.effects.all() == [] and place(story.timeline, NOON) is None


def test_a_call_is_in_flight_until_its_result_is_on_record() -> None:
    tape = begun().invoked()
    assert only(tape.story()).status == "sent" and tape.story().under_way == "order"
    effect = only(tape.returned().story())
    assert (effect.status, effect.external_id, effect.sends, effect.took) == ("committed", "PO-1", 1, 1.0)


def test_a_held_call_becomes_the_call_that_its_approval_let_through() -> None:
    tape = begun().gate()
    assert only(tape.story()).status == "held"
    assert only(tape.decided("approved").story()).status == "cleared"
    effect = only(tape.invoked(grant="0.1/1").returned().story())
    assert (effect.status, effect.approval_id, effect.plan_hash) == ("committed", "id-0.1/1", "p")


def test_a_rejected_call_stays_alongside_its_revision() -> None:
    tape = begun().gate("0.1/1").decided("rejected", "0.1/1", "too dear").gate("0.1/2")
    assert [effect.status for effect in tape.story().effects.all()] == ["rejected", "held"]
    first, second = tape.story().gates
    assert (first.verdict, first.justification, first.took, second.is_open) == ("rejected", "too dear", 60.0, True)


def test_a_call_that_nobody_answered_about_was_not_rejected() -> None:
    story = begun().gate().decided("expired", why="No decision was made before the deadline.").story()
    assert only(story).status == "expired"
    assert [(row.tone, row.note) for row in story.timeline.rows if row.kind == "gate"] == [
        ("late", "No decision was made before the deadline.")
    ]


def test_a_call_that_is_asked_about_further_is_one_effect() -> None:
    tape = begun().gate().decided("approved").gate(n=1)
    assert only(tape.story()).approval_id == "id-0.1/1-1" and only(tape.story()).status == "held"


@each_case("tool", ["", NO_TOOL])
def test_a_gate_that_guards_no_call_is_no_effect(tool: str) -> None:
    assert begun().gate(tool=tool).story().effects.all() == []


def test_an_unknown_outcome_waits_for_a_verdict() -> None:
    tape = begun().invoked(replay_class="unsafe_on_replay")
    tape.add(
        e.ToolOutcomeUnknown(slot="0.1/1", tool="order", is_sender_done=True, payload={"reason": "the line went dead"})
    )
    effect = only(tape.story())
    assert (effect.status, effect.error, effect.is_sender_done, effect.next_attempt) == (
        "unknown",
        "the line went dead",
        True,
        2,
    )


@each_case(("verdict", "status"), [("happened", "committed"), ("did_not", "settled_not"), ("fail", "unknown")])
def test_a_verdict_settles_an_unknown_outcome(verdict: str, status: str) -> None:
    tape = begun().invoked(replay_class="unsafe_on_replay")
    tape.add(e.ToolOutcomeUnknown(slot="0.1/1", tool="order", is_sender_done=True, payload={"reason": "dead line"}))
    tape.add(
        e.ToolReconciled(
            slot="0.1/1", tool="order", verdict=verdict, by="user:olga", n=0, payload={"receipt": {"ref": "R"}}
        )
    )
    effect = only(tape.story())
    assert (effect.status, effect.settled_by) == (status, "user:olga")
    assert effect.result == ({"ref": "R"} if verdict == "happened" else None)


def test_a_second_attempt_is_the_same_effect() -> None:
    tape = begun().invoked(replay_class="unsafe_on_replay")
    tape.add(e.ToolOutcomeUnknown(slot="0.1/1", tool="order", is_sender_done=True, payload={"reason": "?"}))
    tape.add(e.ToolReconciled(slot="0.1/1", tool="order", verdict="did_not", by="user:olga", n=0))
    effect = only(tape.invoked(attempt=1).returned().story())
    assert (effect.attempts, effect.sends, effect.status) == (2, 2, "committed")


def test_a_call_sent_again_with_its_key_counts_as_one_effect_sent_twice() -> None:
    tape = begun().invoked().add(e.ToolRedispatched(slot="0.1/1", tool="order", n=1)).returned()
    effect = only(tape.story())
    assert (effect.sends, effect.attempts, effect.is_keyed) == (2, 1, True)


def test_a_call_that_provably_did_not_leave_says_so() -> None:
    tape = begun().invoked().add(e.ToolNotDispatched(slot="0.1/1", tool="order", n=0, payload={"error": "refused"}))
    assert (only(tape.story()).status, only(tape.story()).not_sent) == ("not_sent", 1)


def test_a_crash_is_a_seam_with_what_was_in_flight() -> None:
    tape = begun().invoked().lost().claimed("recovered", pid=8, after=0.5)
    assert (
        tape.story().crashes[0].took is None and rows(tape.story(), "crash")[0].is_open
    )  # a claim alone is not a step
    tape.add(e.PauseRequested(by="user:olga"), 0.25).add(e.ToolRedispatched(slot="0.1/1", tool="order", n=1), 0.25)
    (crash,) = tape.story().crashes
    assert (crash.pid, crash.in_flight, crash.took) == (7, 1, 1.0)
    (seam,) = rows(tape.story(), "crash")
    assert (seam.took, seam.is_open) == (1.0, False)
    assert (only(tape.story()).interrupted, tape.story().effects.resent) == (1, 1)


def test_only_calls_that_a_crash_interrupted_count_as_sent_again() -> None:
    resent = e.ToolRedispatched(slot="0.1/1", tool="order", n=1)
    assert begun().invoked().add(resent).returned().lost().story().effects.resent == 0


def test_a_worker_lost_before_its_first_step_leaves_two_seams() -> None:
    story = begun().lost().claimed("recovered", pid=8).lost(pid=8).claimed("recovered", pid=9).visit("next").story()
    first, second = rows(story, "crash")
    assert (first.is_cut, first.is_open, second.is_cut, second.took) == (True, False, False, 2.0)
    assert [crash.took for crash in story.crashes] == [None, 2.0]


def test_a_crash_that_nobody_has_taken_over_is_open() -> None:
    story = begun().lost().story()
    assert story.crashes[0].took is None and story.slowest_recovery is None and rows(story, "crash")[0].is_open


def test_time_is_working_waiting_or_paused_and_never_two_at_once() -> None:
    tape = (
        begun()
        .parked()
        .add(e.WaitResolved(slot="s", wait="timer", resolution="due", by="system:sweeper", n=0), 100)
        .claimed("resolved")
    )
    tape.add(e.RunPaused(by="user:olga")).add(e.RunResumed(by="user:olga", state="running"), 10).claimed("resumed").add(
        e.RunCompleted(payload={})
    )
    assert [segment.what for segment in tape.fold().pace.segments] == [
        "queued",
        "working",
        "waiting",
        "queued",
        "working",
        "paused",
        "queued",
        "working",
        "ended",
    ]
    assert tape.fold().pace.total("waiting", tape.at) == 100 and tape.fold().pace.total("paused", tape.at) == 10
    whole = sum(tape.fold().pace.total(what, tape.at) for what in ("queued", "working", "waiting", "paused"))
    assert whole == (tape.at - NOON).total_seconds()


def test_what_arrives_under_pause_wakes_nothing() -> None:
    tape = begun().parked().add(e.RunPaused(by="user:olga")).decided("approved")
    assert tape.fold().pace.now == "paused"


def test_resuming_before_the_boundary_leaves_the_worker_working() -> None:
    tape = begun().add(e.PauseRequested(by="user:olga")).add(e.RunResumed(by="user:olga", state="running"))
    assert tape.fold().pace.now == "working"


def test_the_person_who_asked_is_named_not_the_office() -> None:
    tape = begun().add(e.PauseRequested(by="user:olga")).add(e.RunPaused(by="operator"))
    assert tape.story().requested_by == "user:olga"


def test_the_path_is_what_was_entered() -> None:
    story = begun().visit("order").visit("order").visit("welcome").story()
    assert story.path == ["intake", "order", "order", "welcome"]
    assert story.edges == {("intake", "order"), ("order", "order"), ("order", "welcome")}
    assert [row.visit for row in rows(story, "visit")] == [1, 1, 2, 1]


def test_a_failure_tells_its_words_and_a_retry_reopens_the_visit() -> None:
    tape = begun().add(e.RunFailed(code="bug", payload={"message": "it broke", "traceback": "Traceback …"}))
    story = tape.story()
    assert (story.failure, story.ended_at, story.troubles[-1].trace) == ("it broke.", tape.at, "Traceback …")
    story = tape.add(e.RunRetried(by="user:olga", reopened=[])).story()
    assert story.ended_at is None and rows(story, "visit")[0].is_open


def test_of_a_traceback_the_message_is_its_last_line() -> None:
    trace = "Traceback (most recent call last)\n  File x\nTransportError: the line went dead"
    tape = (
        begun()
        .invoked()
        .add(e.ToolOutcomeUnknown(slot="0.1/1", tool="order", is_sender_done=True, payload={"reason": trace}))
    )
    effect = only(tape.story())
    assert (effect.error, effect.trace) == ("TransportError: the line went dead", trace)


def test_callback_tokens_are_never_part_of_the_story() -> None:
    tape = begun().invoked()
    assert "sesame" not in str(tape.lines[-1].shown) and "sesame" not in str(only(tape.story()))


def test_a_conversation_is_told_in_order_with_its_observations() -> None:
    tape = begun()
    talk = "0.1/1"
    tape.add(
        e.ModelRequested(
            slot=f"{talk}/0/0",
            conversation=talk,
            turn=0,
            model="intake",
            request_hash="h",
            payload={"instructions": "Be good.", "prompt": "Check it."},
        )
    )
    call = {
        "parts": [
            {"part_kind": "text", "content": "I look."},
            {"part_kind": "tool-call", "tool_name": "lookup", "args": '{"name": "Acme"}'},
        ]
    }
    tape.add(
        e.ModelResponded(
            slot=f"{talk}/0/0",
            conversation=talk,
            turn=0,
            tokens_in=3,
            tokens_out=2,
            payload={"model": "scripted", "response": call},
        )
    )
    tape.add(
        e.ToolRead(
            slot=f"{talk}/0/1",
            tool="lookup",
            requested_hash="h",
            payload={"arguments": {}, "result": {"status": "active"}},
        )
    )
    (found,) = tape.story().talks
    assert [(entry.role, entry.text or entry.data) for entry in found.said] == [
        ("system", "Be good."),
        ("user", "Check it."),
        ("agent", "I look."),
        ("agent", {"name": "Acme"}),
        ("tool", {"status": "active"}),
    ]
    assert (found.turns, found.model, found.said[-2].tokens_in) == (1, "scripted", 3)


@each_case("said", ['{"a": NaN}', "[1e999]", "[-Infinity]", "[" * 300 + "]" * 300, "[" * 3000])
def test_what_a_model_says_that_is_nearly_json_is_told_as_it_said_it(said: str) -> None:
    """As data it could not be sent to any provider, nor the conversation with it."""
    payload = {"model": "scripted", "response": {"parts": [{"part_kind": "text", "content": said}]}}
    model_responded = e.ModelResponded(
        slot="0.1/1/0/0", conversation="0.1/1", turn=0, tokens_in=3, tokens_out=2, payload=payload
    )
    (found,) = begun().add(model_responded).story().talks
    assert [(one.text, one.data) for one in found.said] == [(said, None)]


def test_a_damaged_payload_is_said_and_hides_nothing_else() -> None:
    tape = begun().invoked()
    tape.lines[-1].sealed = b"\x07rubbish"
    assert "unreadable" in tape.lines[-1].payload
    assert only(tape.returned().story()).status == "committed"


def test_every_kind_of_event_can_be_told() -> None:
    """A kind without its own step changes nothing and breaks nothing."""
    story = Tape().created()
    for kind in e.KINDS.values():
        fields = {
            name: _example(name, hint) for name, hint in kind.__annotations__.items() if name not in ("KIND", "FACT")
        }
        story.add(kind(slot="0.1/9", **fields))
    assert story.story().length == len(e.KINDS) + 1


def _example(name: str, hint: str) -> object:
    if "list" in hint:
        return []
    if "bool" in hint:
        return False
    return 1 if "int" in hint else "2026-03-02T12:00:00+00:00" if name == "deadline" else "x"


@each_case("is_true", [False, True])
def test_bars_keep_their_order_and_stay_on_the_track(is_true: bool) -> None:
    tape = (
        begun()
        .gate()
        .parked()
        .decided("approved", after=7200)
        .claimed("resolved", after=0.01)
        .invoked(grant="0.1/1")
        .returned()
    )
    scale = place(tape.story().timeline, tape.at + timedelta(seconds=1), is_true=is_true)
    assert scale is not None
    for placed in scale.rows:
        lefts = [float(bar.x.rstrip("%")) for bar in placed.bars]
        ends = [float(bar.x.rstrip("%")) + float(bar.width.rstrip("%")) for bar in placed.bars]
        assert lefts == sorted(lefts) and all(
            left >= 0 and end <= 100.01 for left, end in zip(lefts, ends, strict=True)
        )
    widest = max(float(bar.width.rstrip("%")) for placed in scale.rows for bar in placed.bars if bar.tone == "wait")
    assert (widest > 95) == is_true


def test_the_seam_says_why_where_the_run_stood_and_for_how_long_nothing_was_heard() -> None:
    lost = e.WorkerLost(
        worker="w",
        epoch=1,
        pid=7,
        proof="nobody beats",
        is_counted=False,
        deaths=0,
        cause="host_gone",
        host="h",
        reached="intent_durable",
        call="0.1/1",
        silent_ms=31_000,
    )
    (seam,) = rows(
        begun().invoked().add(lost).claimed("recovered", pid=8, after=0.5).visit("next", after=0).story(), "crash"
    )
    assert (seam.label, seam.reached, seam.silent_seconds, seam.took) == ("host gone", "intent_durable", 31.0, 0.5)


def _lost(cause: str, *, epoch: int, pid: int) -> e.WorkerLost:
    return e.WorkerLost(worker="w", epoch=epoch, pid=pid, proof="?", is_counted=False, deaths=0, cause=cause)


def test_a_sender_has_ended_if_each_lost_worker_is_proven_dead() -> None:
    def after(*causes: str) -> Effect:
        tape = begun().invoked(replay_class="unsafe_on_replay")
        for n, cause in enumerate(causes):
            if n:
                tape.claimed("recovered", pid=7 + n).add(e.ToolRedispatched(slot="0.1/1", tool="order", n=n))
            tape.add(_lost(cause, epoch=1 + n, pid=7 + n))
        tape.add(e.ToolOutcomeUnknown(slot="0.1/1", tool="order", is_sender_done=False, payload={"reason": "?"}))
        return only(tape.story())

    ended = {"proof": True, "operator": True, "suspicion": False, "host_gone": False, "requeued": False}
    assert {cause: after(cause).is_sender_done for cause in ended} == ended
    assert not after().is_sender_done and not after("suspicion", "proof").is_sender_done
    assert after("proof", "operator").ended_pid == 8


def test_a_worker_that_hands_its_answer_in_settles_the_call() -> None:
    tape = begun().invoked(replay_class="unsafe_on_replay")
    tape.add(e.ToolOutcomeUnknown(slot="0.1/1", tool="order", is_sender_done=False, payload={"reason": "?"}))
    tape.add(
        e.ToolReconciled(
            slot="0.1/1", tool="order", verdict="happened", by="worker:w", payload={"result": {"ref": "R"}}
        )
    )
    (call,) = rows(tape.story(), "call")
    assert only(tape.story()).status == "committed" and "reported by" in call.note


def test_where_a_replay_differs_both_calls_are_told_and_what_differs() -> None:
    found = {
        "slot": "0.1/1",
        "recorded": {"call": "order", "hash": "h", "arguments": {"amount": 5, "name": "a"}},
        "now": {"call": "order", "hash": "g", "arguments": {"amount": 6, "name": "a"}},
    }
    stop = begun().add(e.OperatorNeeded(reason="non_determinism", payload=found)).story().stop
    assert stop is not None and stop.two_calls is not None
    recorded, now, changes = stop.two_calls
    assert (recorded["call"], now["call"], [c.path for c in changes]) == ("order", "order", ["amount"])


def test_the_page_of_a_run_that_differs_shows_both_calls_inertly() -> None:
    from django.template.loader import render_to_string

    found = {
        "slot": "0.1/1",
        "recorded": {"call": "order", "hash": "h", "arguments": {"amount": 5, "name": "<script>x"}},
        "now": {"call": "refund", "hash": "g", "arguments": {"amount": 6}},
    }
    story = begun().add(e.OperatorNeeded(reason="non_determinism", payload=found)).story()
    page = render_to_string("runs/parts/stopped.html", {"story": story})
    for part in (
        'id="call-recorded"',
        'id="call-now"',
        'id="call-changes"',
        "order",
        "refund",
        "<del>5</del>",
        "<ins>6</ins>",
    ):
        assert part in page, part
    assert "<script>" not in page
