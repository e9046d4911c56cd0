"""A run is one trace over all its claims, made of what is on record."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import transaction

from durableagents import env
from durableagents.contrib.tracing import export as sending
from durableagents.contrib.tracing import exporter as exporting
from durableagents.contrib.tracing import own_features
from durableagents.contrib.tracing.apps import is_on
from durableagents.contrib.tracing.export import OTLPSender, Outcome, Requests
from durableagents.contrib.tracing.exporter import Exporter, keep_exporting
from durableagents.contrib.tracing.models import Position
from durableagents.contrib.tracing.spans import Begun, Recorded, is_sampled, of
from durableagents.env import EnvironmentProblem
from ledger import context
from ledger import events as e
from ledger.append import append, lines
from ledger.models import LedgerEntry
from ledger.observers import Answered
from ledger.spans import span_id
from runs import features
from runs.connections import dsn
from runs.engine.errors import TransportError
from runs.models import Run
from runs.services.families import ends
from runs.workers import failover
from tests.conftest import CHECKOUT
from tests.contrib.tracing.conftest import Collector, Exporters, export_all
from tests.integration.runs.stage import Stage, now
from tests.tampering import run_sql, tamper
from tests.world import SHOP, Item, Notes, Toolbox, agent_of, ends_with

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CANARY = "canary-7f3a"


def buying(tools: Toolbox) -> Any:
    async def node(state: Notes, ctx: Any) -> Any:
        await ctx.call(tools.look, Item(name=CANARY))
        await ctx.call(tools.order, Item(name=CANARY))
        await ctx.call(tools.pay, Item(name=CANARY, amount=1000))
        await ctx.call(tools.mail, Item(name=CANARY))
        return await ends_with(CANARY)(state, ctx)

    return agent_of(node, tools=tools.all())


def dies_at(stage: Stage, point: str, tool: str) -> None:
    worker = stage.hire(is_dead=True)
    stage.kill_at = [(point, tool)]
    assert stage.drive(worker) == "killed"
    failover.worker_died(worker.id, "reaped")
    Run.objects.filter(ready_at__isnull=False).update(ready_at=now())


def one_call(tool: Any) -> Any:
    async def node(state: Notes, ctx: Any) -> Any:
        await ctx.call(tool, Item(name="x"))
        return await ends_with("x")(state, ctx)

    return agent_of(node, tools=[tool])


@pytest.mark.django_db
def test_a_run_over_three_resumes_and_a_takeover_is_one_tree(
    stage: Stage, tools: Toolbox, collector: Collector, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    origins = features.Feature(name="tracing", on_birth=(own_features.origin,))
    monkeypatch.setitem(features.installed, "tracing", origins)
    token = context.request.set(context.Request("r-1", TRACE, "aaaaaaaaaaaaaaaa", CALLER))
    run = stage.start(buying(tools))
    context.request.reset(token)
    dies_at(stage, "CP4", "order")  # sent, and not recorded: the next worker sends it again
    assert stage.drive() == "parked"  # at the gate
    stage.decide(run)
    tools.outside.trouble("mail", TransportError("cut"), when="after")
    assert stage.drive() == "parked"  # its outcome is unknown
    stage.reconcile(run, "happened", {"ref": "m-1"}, sender_is_gone=True)
    assert stage.drive() == "completed"
    export_all(exporter)
    spans = collector.spans()
    assert {span["trace"] for span in spans} == {TRACE} == {Run.objects.get(pk=run.id).trace_id}
    by_id = {span["id"]: span for span in spans}
    assert len(by_id) == len(spans)
    tops = [span for span in spans if span["parent"] not in by_id]
    assert [(span["id"], span["parent"]) for span in tops] == [(span_id(str(run.id)), "aaaaaaaaaaaaaaaa")]
    calls = [span for span in spans if "durableagents.ledger.status" in span]
    assert {span["name"] for span in calls if span["durableagents.ledger.status"] == "committed"} == {
        f"execute_tool {tool}" for tool in ("look", "order", "pay", "mail")
    }
    assert {"attempted order", "unknown mail"} <= {span["name"] for span in calls}
    assert sorted({s["durableagents.epoch"] for s in spans if "durableagents.epoch" in s}) == [1, 2, 3, 4]
    ends = {s["name"]: s for s in spans if s.get("durableagents.wait.resolution")}
    assert {name: s["durableagents.wait.resolution"] for name, s in ends.items()} == {
        "approval": "approved",
        "wait reconcile": "happened",
    }
    assert all(s["start"] < s["end"] for s in ends.values()) and ends["approval"]["durableagents.role"]
    visits = sorted((s for s in spans if "durableagents.visit.outcome" in s), key=lambda s: int(s["end"]))
    assert [s["durableagents.visit.outcome"] for s in visits] == ["parked", "parked", "completed"]
    assert all(s["start"] < s["end"] for s in visits)
    (end,) = (s for s in spans if s.get("durableagents.run.state"))
    assert end["durableagents.run.state"] == "completed" and end["start"] < end["end"]
    rows = LedgerEntry.objects.filter(run_id=run.id).values_list("slot", "attempt", "key")
    assert all(span_id(str(run.id), slot, attempt, "call") in by_id for slot, attempt, _ in rows)
    sent = b"".join(collector.bodies)
    assert CANARY.encode() not in sent and not [key for *_, key in rows if key and key.encode() in sent]


@pytest.mark.django_db
def test_a_child_run_hangs_below_its_parent(
    stage: Stage, tools: Toolbox, collector: Collector, exporter: Exporter
) -> None:
    child = one_call(tools.order)

    async def node(state: Notes, ctx: Any) -> Any:
        await ctx.child(child, {})
        return await ends_with("x")(state, ctx)

    run = stage.start(agent_of(node))
    while stage.drive() != "idle":
        ends.tell_many([each.pk for each in Run.objects.filter(parent=run.id)])
    export_all(exporter)
    starts = {span["id"]: span["parent"] for span in collector.spans() if span["name"].startswith("start ")}
    (made,) = Run.objects.filter(parent=run.id)
    assert starts == {span_id(str(run.id)): "", span_id(str(made.id)): span_id(str(run.id))}
    assert len({span["trace"] for span in collector.spans()}) == 1


@pytest.mark.django_db
def test_a_killed_workers_call_is_seen_as_attempted_and_later_as_settled(
    stage: Stage, tools: Toolbox, collector: Collector, exporter: Exporter
) -> None:
    run = stage.start(one_call(tools.mail))
    dies_at(stage, "CP4", "mail")
    export_all(exporter)
    (attempt,) = (span for span in collector.spans() if span["name"] == "attempt mail")
    assert attempt["durableagents.ledger.status"] == "attempted"
    assert stage.drive() == "parked"
    export_all(exporter)
    (unknown,) = (span for span in collector.spans() if span["name"] == "unknown mail")
    assert unknown["parent"] == attempt["id"]
    stage.reconcile(run, "happened", {"ref": "m-1"}, sender_is_gone=True)
    export_all(exporter)
    (done,) = (span for span in collector.spans() if span["name"] == "execute_tool mail")
    assert (done["parent"], done["durableagents.ledger.status"]) == (attempt["id"], "committed")
    assert done["start"] == attempt["start"] < done["end"]


def invoked(slot: str) -> e.ToolInvoked:
    unsafe = "unsafe_on_replay"
    return e.ToolInvoked(slot=slot, attempt=0, tool="mail", replay_class=unsafe, requested_hash="h", executed_hash="h")


def for_a_while(exporter: Exporter, seconds: float = 0.4) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        exporter.export()
        time.sleep(0.02)


def append_elsewhere(run: Run, event: e.Event, after: int) -> None:
    """Append in a transaction of its own."""
    statement, values = lines([event], run.pk, after)
    with psycopg.connect(dsn(), autocommit=True) as link:
        link.execute(f"SELECT ledger_append_as(%s, 'shop', {statement}, '{{}}')", [run.pk, *values])


@pytest.mark.django_db
def test_an_event_that_becomes_visible_late_is_exported_once(
    stage: Stage, tools: Toolbox, collector: Collector, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, prompt = stage.start(one_call(tools.look)), stage.start(one_call(tools.look))
    export_all(exporter)
    with transaction.atomic():
        append(late.id, invoked("9/1"), by=SHOP)
        append_elsewhere(prompt, invoked("9/1"), 1)
        for_a_while(exporter)
        assert "attempt mail" not in collector.names()
    export_all(exporter)
    assert sorted(collector.names()) == sorted(
        ["attempt mail"] * 2 + [f"start {late.graph_id}", f"start {prompt.graph_id}"]
    )
    # A transaction that nobody ends holds spans back for a limited time.
    monkeypatch.setattr(exporting, "MAX_WAIT", timedelta(seconds=0.3))
    with transaction.atomic():
        append(late.id, invoked("9/2"), by=SHOP)
        append_elsewhere(prompt, invoked("9/2"), 2)
        for_a_while(exporter, 1.0)
        assert collector.names().count("attempt mail") == 3


@pytest.mark.django_db
def test_nothing_is_lost_when_the_collector_hangs_and_the_exporter_is_killed(
    stage: Stage, tools: Toolbox, collector: Collector, exporters: Exporters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(exporting, "MAX_EVENTS", 3)  # in a batch
    first = exporters.new()
    stage.start(one_call(tools.look))
    assert stage.drive() == "completed"
    export_all(first)
    assert len(collector.bodies) >= 2
    collector.answers.clear()
    run = stage.start(one_call(tools.order))
    assert stage.drive() == "completed"
    until = time.monotonic() + exporting.MAX_WAIT.total_seconds() + 10  # held back as in export_all
    while first.export()[0] is not Outcome.AWAY:
        assert time.monotonic() < until
    first.link.close()
    collector.answers.set()
    export_all(second := exporters.new())
    counts = Counter(span["id"] for span in collector.spans())
    assert max(counts.values()) <= 3 and f"invoke_agent {run.graph_id}" in collector.names()
    collector.status = 400  # takes nothing of this, whenever it is sent
    stage.start(one_call(tools.look))
    export_all(second)
    # Without a collector for days, only the newest are sent.
    collector.status = 200
    monkeypatch.setattr(exporting, "MAX_BEHIND", timedelta(minutes=10))
    Position.objects.update(at=now() - timedelta(days=3))
    third = exporters.new()
    third.export()
    assert timedelta(minutes=8) < now() - third.position <= exporting.MAX_BEHIND
    export_all(third)


@pytest.mark.django_db
def test_one_process_exports_at_a_time_and_another_takes_its_place(
    stage: Stage, tools: Toolbox, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "STANDBY_SECONDS", 0.05)
    stops = [threading.Event(), threading.Event()]
    sender = OTLPSender(collector.address)
    threads = [threading.Thread(target=keep_exporting, args=[sender, 1.0, stop]) for stop in stops]
    for thread in threads:
        thread.start()
        time.sleep(0.3)
    try:
        for n, (stop, thread) in enumerate(zip(stops, threads, strict=True), 1):
            stage.start(one_call(tools.look))
            until = time.monotonic() + exporting.MAX_WAIT.total_seconds() + 10  # held back as in export_all
            while len(collector.names()) < n and time.monotonic() < until:
                time.sleep(0.05)
            held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND granted"
            assert run_sql(held, exporting.LOCK) == [(1,)]
            stop.set()
            thread.join(10)
    finally:
        for stop in stops:
            stop.set()
    assert len(collector.names()) == 2


@pytest.mark.django_db
def test_a_damaged_event_is_left_out_and_logged(
    stage: Stage, tools: Toolbox, collector: Collector, exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    run = stage.start(one_call(tools.look))
    for n, damaged in enumerate((b"no JSON", b'{"kind": "ToolRead"}', b'{"kind": "RunClaimed", "attempt": []}'), 2):
        tamper(
            "INSERT INTO ledger_event (run_id, seq, epoch, at, kind, attempt, clear, prev_hash, hash) "
            "VALUES (%s, %s, 0, clock_timestamp(), 'RunClaimed', 0, %s, '', '')",
            run.id,
            n,
            damaged,
        )
    export_all(exporter)
    assert collector.names() == [f"start {run.graph_id}"] and caplog.text.count("can't be read") == 3


def test_a_model_request_follows_the_conventions() -> None:
    place: dict[str, Any] = {"slot": "1.1/1", "attempt": 0, "conversation": "c", "turn": 1}
    asked = e.ModelRequested(**place, model="openai:gpt-5", request_hash="h", payload=CANARY)
    answer = e.ModelResponded(**place, tokens_in=12, tokens_out=3, payload=CANARY)
    run = uuid4()
    recorded = Recorded(run, 7, 1, 500, 100, answer, TRACE, "shop@1", "")
    (span,) = of(recorded, {(run, "1.1/1", 0, asked.fact): Begun(200, asked)}, None)
    fields = {name.removeprefix("gen_ai."): value for name, value in span.attributes.items() if "gen_ai." in name}
    assert (span.name, span.start, span.end) == ("chat gpt-5", 200, 500) and fields == {
        "operation.name": "chat",
        "request.model": "gpt-5",
        "provider.name": "openai",
        "usage.input_tokens": 12,
        "usage.output_tokens": 3,
    }


def test_requests_are_spans_and_never_wait_for_the_collector(collector: Collector) -> None:
    requests = Requests(collector.address, 0.5)
    collector.answers.clear()
    began = time.perf_counter()
    for n in range(20_000):
        trace_id = "0" * 31 + "1" if n % 2 else "f" * 32
        request = context.Request("r-1", trace_id, "aaaaaaaaaaaaaaaa", CALLER)
        requests.answered(Answered(request, "GET", "/runs", 200, 1, 2))
    assert time.perf_counter() - began < 2
    collector.answers.set()
    until = time.monotonic() + 10
    while not collector.bodies and time.monotonic() < until:
        time.sleep(0.05)
    span = collector.spans()[0]
    assert (span["name"], span["id"], span["parent"]) == ("GET", "aaaaaaaaaaaaaaaa", CALLER)
    assert {span["trace"] for span in collector.spans()} == {"0" * 31 + "1"}
    assert is_sampled("f" * 32, 1.0) and not is_sampled("0" * 32, 0.0)


def test_nothing_is_imported_and_nobody_observes_while_it_is_off() -> None:
    look = (
        "import sys, django; django.setup(); from ledger import observers as o\n"
        "print(o.installed.get(o.Answered), [m for m in sys.modules if m.startswith(('opentelemetry.sdk',"
        " 'opentelemetry.exporter', 'durableagents.contrib.tracing.e'))])"
    )
    here = {**os.environ, "DJANGO_SETTINGS_MODULE": "durableagents.settings"}
    done = subprocess.run(
        [sys.executable, "-c", look], cwd=CHECKOUT, env=here, capture_output=True, text=True, check=False
    )
    assert done.stdout == "None []\n", done.stderr


def test_a_collector_in_the_settings_switches_it_on(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    standard = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    cases: list[tuple[dict[str, str], bool | str]] = [
        ({"DURABLEAGENTS_OTLP_ENDPOINT": "http://127.0.0.1:9"}, True),
        (standard, True),
        (standard | {"OTEL_SDK_DISABLED": "true"}, False),
        ({"DURABLEAGENTS_OTLP_ENDPOINT": "collector:4318"}, "DURABLEAGENTS_OTLP_ENDPOINT"),
        ({"DURABLEAGENTS_TRACE_URL": "javascript:alert(1)//{trace_id}"}, "DURABLEAGENTS_TRACE_URL"),
        ({"DURABLEAGENTS_TRACE_URL": "http://127.0.0.1:16686/trace"}, "DURABLEAGENTS_TRACE_URL"),
    ]
    for variables, wanted in cases:
        with monkeypatch.context() as here:
            for name, value in variables.items():
                here.setenv(name, value)
            if isinstance(wanted, str):
                with pytest.raises(EnvironmentProblem, match=wanted):
                    env.load()
            else:
                settings.DURABLEAGENTS = env.load()
                assert is_on() is wanted, variables
