"""Deliveries and their outcome when endpoints, workers or names misbehave."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import connection, transaction
from standardwebhooks.webhooks import Webhook as Verifier

from durableagents.contrib.notifications import preferences
from durableagents.contrib.notifications.models import Notice
from durableagents.contrib.notifications.preferences import PreferenceBody
from durableagents.contrib.webhooks import delivering, events, queries, services
from durableagents.contrib.webhooks.models import Attempt, Message, Webhook
from durableagents.contrib.webhooks.services import ReplayBody, SecretBody
from durableagents.outgoing import http
from ledger.errors import InvalidInput
from runs.engine.agents import registry
from runs.models import Run, Wait
from runs.services import lifecycle
from tests.contrib.webhooks.conftest import SHELL, WHY, Receiver, webhook
from tests.integration.approvals.setup import asked, say, somebody
from tests.integration.runs.stage import Stage, calling
from tests.world import OLGA, Toolbox

Begin = Callable[[], Receiver]
ALL = tuple(events.EVENTS)


def due() -> None:
    Message.objects.filter(state__in=Message.OPEN).update(due_at=delivering.database_now())


def completed(stage: Stage, tools: Toolbox, tool: str = "order") -> Run:
    run = stage.start(calling(tools, tool))
    stage.settle(run)
    return run


def test_events_are_signed_in_order_and_carry_no_content(stage: Stage, tools: Toolbox, receivers: Begin) -> None:
    receiver = receivers()
    row = webhook(receiver, *ALL)
    fiona = somebody("fiona", "approver_finance")
    approval = asked(stage, tools)
    say(approval, fiona)
    assert stage.drive() == "completed"
    assert queries.backlog().count == 4
    assert delivering.deliver() == 4 and receiver.types == [
        "approval.opened",
        "run.waiting",
        "approval.decided",
        "run.completed",
    ]
    numbers = [message["data"]["sequence"] for _, message in receiver.got]
    assert numbers == sorted(numbers) and len({name for name, _ in receiver.got}) == 4
    opened, waiting, decided, ended = (message["data"] for _, message in receiver.got)
    run = Run.objects.get()
    assert {each["run_id"] for each in (opened, waiting, decided, ended)} == {str(run.pk)}
    assert (waiting["state"], decided["state"], ended["state"]) == ("waiting_human", "approved", "completed")
    assert opened["approval_id"] == str(approval.pk) and opened["queue"] == "finance_po"
    assert ended["url"] == f"{configured.DURABLEAGENTS.base_url}/runs/{run.pk}" and "content" not in ended
    assert queries.backlog() == queries.Backlog(0, 0) and delivering.deliver() == 0
    assert set(row.messages.values_list("state", flat=True)) == {"sent"}
    assert list(Attempt.objects.values_list("outcome", "status", "answer").distinct()) == [("sent", 200, "ok")]


def test_an_event_is_written_if_and_only_if_its_change_is(stage: Stage, tools: Toolbox, receivers: Begin) -> None:
    webhook(receivers(), *ALL)
    run = stage.start(calling(tools, "order"))
    with transaction.atomic():
        lifecycle.cancel(run.pk, by=OLGA, justification="not needed")
        transaction.set_rollback(True)
    assert not Message.objects.exists()
    lifecycle.cancel(run.pk, by=OLGA, justification="not needed")
    assert list(Message.objects.values_list("event", "facts__state")) == [("run.cancelled", "cancelled")]
    opened_at = delivering.database_now()
    for n, kind in enumerate(("reconcile", "operator", "timer")):
        with transaction.atomic():
            Wait.objects.create(
                id=f"00000000-0000-4000-8000-00000000000{n}",
                run_id=run.pk,
                slot=f"0.1/{n}",
                kind=kind,
                opened_at=opened_at,
                deadline=opened_at,
            )
    assert [one.event for one in Message.objects.order_by("pk")][1:] == ["run.outcome_unknown", "run.stopped"]


def test_a_starter_who_chose_so_is_told_of_the_end(stage: Stage, tools: Toolbox) -> None:
    ida = somebody("ida", "integrator", email="ida@example.org")
    other = somebody("ivo", "integrator")
    preferences.save_settings(PreferenceBody(ways={"ended": ["browser"]}), by=ida)
    runs = []
    for by in (ida, other):
        run = stage.start(calling(tools, "order"))
        with connection.cursor() as cursor:
            cursor.execute("SET session_replication_role = replica")
            cursor.execute("UPDATE runs_run SET creator = %s WHERE id = %s", [by.person, run.pk])
            cursor.execute("RESET session_replication_role")
        stage.settle(run)
        runs.append(run)
    assert list(Notice.objects.filter(kind="ended").values_list("run_id", "person")) == [(runs[0].pk, ida.person)]


def test_filters_limit_the_runs(stage: Stage, tools: Toolbox, receivers: Begin) -> None:
    run = stage.start(calling(tools, "order"))
    other = next(each.name for each in registry.agents() if each.name != run.agent)
    somebody("ida", "integrator")
    fits: list[dict[str, Any]] = [{}, {"agent": run.agent}]
    others: list[dict[str, Any]] = [{"agent": other}, {"tag": "x"}, {"key_prefix": "x"}, {"started_by": "ida"}]
    rows = [webhook(receivers(), "run.completed", **each) for each in (*fits, *others)]
    webhook(receivers(), "run.failed")
    stage.settle(run)
    assert [row.messages.count() for row in rows] == [1, 1, 0, 0, 0, 0] and Message.objects.count() == 2


def test_content_is_what_the_creator_may_read(stage: Stage, tools: Toolbox, receivers: Begin) -> None:
    reader = somebody("reader", "operator", is_superuser=True, is_staff=True)
    nobody = somebody("nobody", is_superuser=True, is_staff=True)
    many = [receivers(), receivers()]
    for receiver, by in zip(many, (reader, nobody), strict=True):
        webhook(receiver, "run.completed", by=by, has_content=True)
    completed(stage, tools)
    delivering.deliver()
    with_content, without = (receiver.got[0][1]["data"]["content"] for receiver in many)
    assert with_content and without is None
    with pytest.raises(InvalidInput, match="has_content"):
        webhook(receivers(), "run.completed", has_content=True)


KILLED = """
import django
django.setup()
from durableagents.contrib.webhooks import delivering
delivering.deliver()
"""


def test_a_worker_killed_before_it_records_sends_again_under_the_same_id(
    stage: Stage, tools: Toolbox, receivers: Begin, tmp_path: Path
) -> None:
    receiver = receivers()
    webhook(receiver, "run.completed")
    completed(stage, tools)
    at = connection.settings_dict
    url = f"postgresql://{at['USER']}:{at['PASSWORD']}@/{at['NAME']}?host={at['HOST']}&port={at['PORT']}"
    env = os.environ | {
        "DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "durableagents.settings",
        "DURABLEAGENTS_DATA": str(configured.DURABLEAGENTS.data),
        "DURABLEAGENTS_WEBHOOK_NETWORKS": "127.0.0.0/8",
        "DURABLEAGENTS_FAILPOINTS": "WP2:kill:1",
        "DURABLEAGENTS_FAILPOINT_DIR": str(tmp_path),
    }
    done = subprocess.run([sys.executable, "-c", KILLED], env=env, capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    row = Message.objects.get()
    assert row.state == "sending" and len(receiver.got) == 1 and delivering.deliver() == 0  # its lease holds
    due()
    assert delivering.deliver() == 1
    assert len({name for name, _ in receiver.got}) == 1 and len(receiver.got) == 2
    assert list(row.log.order_by("pk").values_list("outcome", flat=True)) == ["unknown", "sent"]


def test_a_slow_endpoint_delays_no_other(stage: Stage, tools: Toolbox, receivers: Begin) -> None:
    slow, fast = receivers(), receivers()
    let_go = threading.Event()

    def hang() -> None:
        let_go.wait(15)

    slow.on_message = hang
    webhook(slow, "run.completed")
    webhook(fast, "run.completed")
    for _ in range(6):
        completed(stage, tools)
    began = time.monotonic()
    fast_in: list[float] = []

    def came() -> None:
        fast_in.append(time.monotonic() - began)
        if len(fast_in) == 6:
            let_go.set()

    fast.on_message = came
    assert delivering.deliver() == 12 and max(fast_in) < 5 and len(slow.got) == 6


def test_a_hostile_answer_fails_and_stops_no_other(stage: Stage, tools: Toolbox, receivers: Begin) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as wire:
                wire.recv(65536)
                wire.sendall(b"\x00\xff garbage\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        port = server.getsockname()[1]
        hostile = webhook(Receiver(url=f"http://127.0.0.1:{port}/"), "run.completed")
        poison, good = receivers(), receivers()
        poison.answers, good.on_message = [(200, {}, b"poison")], lambda: time.sleep(0.5)
        refused, other = webhook(poison, "run.completed"), webhook(good, "run.completed")
        run = stage.start(calling(tools, "order"))
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE webhooks_attempt ADD CONSTRAINT no_poison CHECK (answer <> 'poison')")
        try:
            stage.settle(run)
            assert delivering.deliver() == 3
        finally:
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE webhooks_attempt DROP CONSTRAINT no_poison")
    for row in (hostile, refused, other):
        row.refresh_from_db()
    assert [row.messages.get().state for row in (hostile, refused, other)] == ["waiting", "waiting", "sent"]
    assert hostile.failing_since and refused.failing_since and not other.failing_since
    attempts = {one.message.webhook_id: one for one in Attempt.objects.all()}
    assert len(attempts) == 3 and "garbage" in attempts[hostile.pk].why and "\x00" not in attempts[hostile.pk].why
    assert attempts[refused.pk].why == "its answer can't be recorded" and queries.backlog().count == 2


def test_an_endpoint_has_the_whole_time_for_its_answer(
    stage: Stage, tools: Toolbox, receivers: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "STEP_SECONDS", 0.2)
    slow = receivers()
    slow.on_message = lambda: time.sleep(1)
    row = webhook(slow, "run.completed")
    completed(stage, tools)
    delivering.deliver()
    assert row.messages.get().state == "sent" and http.WHOLE_SECONDS == 20.0


def test_what_an_endpoint_may_answer(stage: Stage, tools: Toolbox, receivers: Begin) -> None:
    receiver, inner = receivers(), receivers()
    row = webhook(receiver, "run.completed")
    completed(stage, tools)
    huge = "\u202e<script>".encode() + b"x" * 10_000_000
    receiver.answers = [
        (302, {"Location": inner.url}, b""),
        (429, {"Retry-After": "900"}, b""),
        (500, {"Retry-After": "999999999999"}, huge),
        (410, {}, b"gone"),
    ]
    waits = []
    for _ in range(3):
        due()
        delivering.deliver()
        message = Message.objects.get()
        waits.append((message.due_at - delivering.database_now()).total_seconds())
    assert message.state == "waiting" and not inner.got and Webhook.objects.get().failing_since
    assert 3 < waits[0] < 7 and 890 < waits[1] <= 900 and 86_390 < waits[2] <= 86_400
    answer = message.log.order_by("-pk")[0].answer
    assert len(answer) < 600 and "\u202e" not in answer and "U+202E" in answer
    due()
    delivering.deliver()
    message.refresh_from_db()
    row.refresh_from_db()
    assert (message.state, row.state) == ("failed", "disabled") and "410" in row.why and row.is_authentic
    assert Notice.objects.get(kind="endpoint_stopped").about == f"{row.name} (disabled)"
    completed(stage, tools)
    assert Message.objects.count() == 1
    services.resume(row.pk, by=SHELL, justification=WHY)
    services.replay(row.pk, ReplayBody(message=message.pk, justification=WHY), by=SHELL)
    delivering.deliver()
    assert len({name for name, _ in receiver.got}) == 1 and len(receiver.got) == 5


def test_a_message_is_given_up_and_a_webhook_that_fails_for_days_is_paused(
    stage: Stage, tools: Toolbox, receivers: Begin
) -> None:
    receiver = receivers()
    row = webhook(receiver, "run.completed")
    completed(stage, tools)
    receiver.answers = [(500, {}, b"")] * 20
    for _ in range(events.MAX_ATTEMPTS):
        due()
        delivering.deliver()
    message = Message.objects.get()
    assert message.state == "failed" and "given up after 10 attempts" in message.note
    Webhook.objects.update(failing_since=delivering.database_now() - timedelta(days=events.PAUSE_AFTER_DAYS, hours=1))
    completed(stage, tools)
    delivering.deliver()
    row.refresh_from_db()
    assert row.state == "paused" and Notice.objects.filter(kind="endpoint_stopped").count() == 1
    completed(stage, tools)
    due()
    assert delivering.deliver() == 0 and row.messages.filter(state="waiting").count() == 2
    receiver.answers.clear()
    services.resume(row.pk, by=SHELL, justification=WHY)
    since = delivering.database_now() - timedelta(hours=1)
    assert services.replay(row.pk, ReplayBody(since=since, only_failed=True, justification=WHY), by=SHELL) == 1
    assert delivering.deliver() == 3 and set(row.messages.values_list("state", flat=True)) == {"sent"}
    assert services.replay(row.pk, ReplayBody(since=since, justification=WHY), by=SHELL) == 3


def test_a_name_that_later_leads_inside_gets_nothing(
    stage: Stage, tools: Toolbox, receivers: Begin, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    receiver, where = receivers(), ["203.0.112.7"]
    port = int(receiver.url.split(":")[2].split("/")[0])
    resolve = socket.getaddrinfo

    def resolved(host: str, *args: Any, **more: Any) -> Any:
        return resolve(where[0] if host == "hooks.example.com" else host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"webhook_addresses": []})
    for bad in (
        receiver.url,
        "https://127.0.0.1/x",
        "https://169.254.169.254/x",
        "https://a:b@example.com/",
        "ftp://x",
    ):
        with pytest.raises(InvalidInput, match="url"):
            webhook(Receiver(url=bad), "run.completed")
    webhook(Receiver(url=f"https://hooks.example.com:{port}/x"), "run.completed")
    completed(stage, tools)
    where[0] = "127.0.0.1"
    delivering.deliver()
    message = Message.objects.get()
    assert message.state == "waiting" and "leads inside" in message.note and not receiver.got


def test_both_secrets_are_valid_while_they_overlap(stage: Stage, tools: Toolbox, receivers: Begin) -> None:
    receiver = receivers()
    row = webhook(receiver, "run.completed")
    _, new = services.rotate(row.pk, SecretBody(overlap_hours=1, justification=WHY), by=SHELL)
    for secret in (receiver.secret, new):
        receiver.secret = secret
        completed(stage, tools)
        assert delivering.deliver() == 1
    assert set(row.messages.values_list("state", flat=True)) == {"sent"}
    row.refresh_from_db()
    stored = connection.cursor().execute("SELECT w::text FROM webhooks_webhook w").fetchall()
    assert not any(text in str(stored) for text in (new, receiver.url)) and row.is_authentic
    _, newest = services.rotate(row.pk, SecretBody(overlap_hours=0, justification=WHY), by=SHELL)
    completed(stage, tools)
    receiver.secret = newest
    delivering.deliver()
    assert len(receiver.got) == 3 and Verifier(newest)


def test_forged_webhooks_and_erased_runs_send_nothing(
    stage: Stage, tools: Toolbox, receivers: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = receivers()
    row = webhook(receiver, "run.completed")
    completed(stage, tools)
    Webhook.objects.update(name="forged")
    delivering.deliver()
    assert Message.objects.get().state == "not_sent_any_more" and not receiver.got
    Webhook.objects.update(name=row.name)
    erased = completed(stage, tools)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET erased_at = now() WHERE id = %s", [erased.pk])
    delivering.deliver()
    assert not receiver.got and "erased" in Message.objects.latest("pk").note


def test_old_messages_are_removed_with_their_log_and_no_others(stage: Stage, tools: Toolbox, receivers: Begin) -> None:
    webhook(receivers(), "run.completed")
    for _ in range(2):
        completed(stage, tools)
    delivering.deliver()
    old = Message.objects.earliest("pk")
    Message.objects.filter(pk=old.pk).update(at=delivering.database_now() - timedelta(days=31))
    assert delivering.forget() == 1 and not Attempt.objects.filter(message_id=old.pk).exists()
    assert Attempt.objects.count() == Message.objects.count() == 1
