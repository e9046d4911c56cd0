"""A run is one trace over all its claims, and tracing neither breaks nor slows it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import pytest

from durableagents.contrib.tracing.export import Exporter
from durableagents.contrib.tracing.observer import Tracer
from durableagents.contrib.tracing.spans import Span
from ledger import context, observers
from ledger import events as e
from ledger.models import LedgerEntry
from ledger.observers import Written
from ledger.spans import span_id
from runs.engine.errors import TransportError
from runs.models import Run
from runs.workers import failover
from tests.conftest import CHECKOUT
from tests.contrib.tracing.conftest import Collector
from tests.integration.runs.stage import Stage, now
from tests.world import Item, Notes, Toolbox, agent_of, ends_with

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CANARY = "canary-7f3a"
RUN = "0198c0de-0000-7000-8000-000000000001"


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


@pytest.mark.django_db
def test_a_run_over_three_resumes_and_a_takeover_is_one_tree(
    stage: Stage, tools: Toolbox, collector: Collector, exporter: Exporter
) -> None:
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
    assert exporter.flush(10)
    spans = collector.spans()
    assert {span["trace"] for span in spans} == {TRACE} == {Run.objects.get(pk=run.id).trace_id}
    by_id = {span["id"]: span for span in spans}
    assert len(by_id) == len(spans)
    tops = [span for span in spans if span["parent"] not in by_id]
    assert [(span["id"], span["parent"]) for span in tops] == [(span_id(str(run.id)), "aaaaaaaaaaaaaaaa")]
    calls = sorted((s for s in spans if "durableagents.ledger.status" in s), key=lambda s: int(s["end"]))
    # What ends before it is sent is one span, so only the last status of each call is certain.
    last = {span["gen_ai.tool.name"]: span["durableagents.ledger.status"] for span in calls}
    assert last == dict.fromkeys(("look", "order", "pay", "mail"), "committed")
    assert "unknown" in {span["durableagents.ledger.status"] for span in calls if span["gen_ai.tool.name"] == "mail"}
    assert sorted({s["durableagents.epoch"] for s in spans if "durableagents.epoch" in s}) == [1, 2, 3, 4]
    ends = {s["name"]: s for s in spans if s.get("durableagents.wait.resolution")}
    assert {name: s["durableagents.wait.resolution"] for name, s in ends.items()} == {
        "approval": "approved",
        "wait reconcile": "happened",
    }
    assert all(s["start"] < s["end"] for s in ends.values()) and ends["approval"]["durableagents.role"]
    (end,) = (s for s in spans if s.get("durableagents.run.state"))
    assert end["durableagents.run.state"] == "completed" and end["start"] < end["end"]
    rows = LedgerEntry.objects.filter(run_id=run.id).values_list("slot", "attempt", "key")
    assert all(span_id(str(run.id), slot, attempt, "call") in by_id for slot, attempt, _ in rows)
    sent = b"".join(collector.bodies)
    assert CANARY.encode() not in sent and not [key for *_, key in rows if key and key.encode() in sent]


def written(event: e.Event, epoch: int = 1) -> Written:
    return Written(RUN, [event], epoch, TRACE, "shop@1")


def invoked(slot: str = "1.1/1") -> e.ToolInvoked:
    unsafe = "unsafe_on_replay"
    return e.ToolInvoked(slot=slot, attempt=0, tool="mail", replay_class=unsafe, requested_hash="h", executed_hash="h")


def test_a_killed_workers_call_is_seen_as_attempted_and_later_as_settled(
    collector: Collector, exporter: Exporter
) -> None:
    exporter.put(Span("before the fork", TRACE, CALLER, "", 1, 1))  # its thread doesn't come along
    collector.waits_for("before the fork")
    if (pid := os.fork()) == 0:
        observers.tell(written(invoked()))
        time.sleep(60)
        os._exit(1)
    try:
        attempt = collector.waits_for("attempt mail")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert attempt["durableagents.ledger.status"] == "attempted"
    unknown = e.ToolOutcomeUnknown(slot="1.1/1", attempt=0, tool="mail", is_sender_done=False)
    observers.tell(written(unknown, epoch=2))
    assert collector.waits_for("unknown mail")["parent"] == attempt["id"]
    settled = e.ToolReconciled(slot="1.1/1", attempt=0, tool="mail", verdict="happened", by="user:olga")
    observers.tell(written(settled, epoch=0))
    done = collector.waits_for("execute_tool mail")
    assert (done["parent"], done["durableagents.ledger.status"]) == (attempt["id"], "committed")


def test_a_quick_call_is_one_span_with_its_length(collector: Collector, exporter: Exporter) -> None:
    observers.tell(written(invoked()))
    observers.tell(written(e.ToolFailed(slot="1.1/1", attempt=0, tool="mail", code="no_stock", requested_hash="h")))
    assert exporter.flush(10)
    (span,) = collector.spans()
    assert (span["name"], span["error"], span["id"]) == (
        "execute_tool mail",
        "no_stock",
        span_id(RUN, "1.1/1", 0, "call"),
    )
    assert span["start"] < span["end"] and span["durableagents.ledger.status"] == "failed"


def test_a_model_request_follows_the_conventions(collector: Collector, exporter: Exporter) -> None:
    place: dict[str, Any] = {"slot": "1.1/1", "attempt": 0, "conversation": "c", "turn": 1}
    observers.tell(written(e.ModelRequested(**place, model="openai:gpt-5", request_hash="h", payload=CANARY)))
    observers.tell(written(e.ModelResponded(**place, tokens_in=12, tokens_out=3, payload=CANARY)))
    assert exporter.flush(10)
    (span,) = collector.spans()
    fields = {name.removeprefix("gen_ai."): value for name, value in span.items() if name.startswith("gen_ai.")}
    assert span["name"] == "chat gpt-5" and fields == {
        "operation.name": "chat",
        "request.model": "gpt-5",
        "provider.name": "openai",
        "usage.input_tokens": 12,
        "usage.output_tokens": 3,
    }


def test_a_collector_that_hangs_or_is_away_costs_spans_and_nothing_else(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.answers.clear()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        away = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for address in (collector.address, away):
        exporter = Exporter(address, max_queued=100)
        tracer = Tracer(exporter.put)
        began = time.perf_counter()
        for n in range(1000):
            tracer.wrote(written(invoked(f"1.1/{n}")))
        assert time.perf_counter() - began < 2
        assert exporter.dropped >= 900
        began = time.perf_counter()
        assert not exporter.flush(0.3) or address == away
        assert time.perf_counter() - began < 1
    assert "spans were dropped" in caplog.text


def test_a_share_of_traces_is_exported_whole() -> None:
    got: list[Span] = []
    half = Tracer(got.append, 0.5)
    for trace_id in (f"{'0' * 16}{'0' * 15}1", "0" * 16 + "f" * 16):
        for event in (invoked(), e.RunCompleted()):
            half.wrote(Written(RUN, [event], 1, trace_id, "shop@1"))
    assert [span.trace_id[-1] for span in got] == ["1", "1"]
    Tracer(got.append, 0.0).wrote(written(invoked()))
    assert len(got) == 2


def test_nothing_is_imported_and_nobody_observes_while_it_is_off() -> None:
    look = (
        "import sys, django; django.setup(); from ledger import observers as o\n"
        "print(o.installed.get(o.Written), [m for m in sys.modules if m.startswith(('opentelemetry.sdk',"
        " 'opentelemetry.exporter', 'durableagents.contrib.tracing.e'))])"
    )
    here = {**os.environ, "DJANGO_SETTINGS_MODULE": "durableagents.settings"}
    standard = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    cases: list[tuple[dict[str, str], str]] = [
        ({}, "None []"),
        ({"DURABLEAGENTS_OTLP_ENDPOINT": "http://127.0.0.1:9"}, "Tracer"),
        (standard, "Tracer"),
        (standard | {"OTEL_SDK_DISABLED": "true"}, "None []"),
        ({"DURABLEAGENTS_OTLP_ENDPOINT": "collector:4318"}, "DURABLEAGENTS_OTLP_ENDPOINT"),
        ({"DURABLEAGENTS_TRACE_URL": "javascript:alert(1)//{trace_id}"}, "DURABLEAGENTS_TRACE_URL"),
        ({"DURABLEAGENTS_TRACE_URL": "http://127.0.0.1:16686/trace"}, "DURABLEAGENTS_TRACE_URL"),
    ]
    for more, wanted in cases:
        done = subprocess.run(
            [sys.executable, "-c", look], cwd=CHECKOUT, env=here | more, capture_output=True, text=True, check=False
        )
        assert wanted in done.stdout + done.stderr, done.stderr
