"""People and queues for the tests of deciding."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.test import Client
from django.utils import timezone

from approvals.models import Approval
from approvals.queue_models import Queue
from approvals.queues import acts
from approvals.queues.acts import LimitBody
from approvals.services import decide
from durableagents import Context, End
from ledger.actors import Actor
from ledger.verification.runs import verify
from runs.connections import dsn
from runs.engine.agents import Agent
from runs.journal.asked.queues import QUEUES
from runs.models import Run
from tests.integration.runs.fold import check_against_journal
from tests.integration.runs.stage import Stage, at_once
from tests.world import Item, Notes, Toolbox, agent_of

WHY = "as agreed with the board"


def somebody(name: str, *roles: str, **more: Any) -> Actor:
    user = User.objects.create_user(name, **more)
    user.groups.set([Group.objects.get_or_create(name=role)[0] for role in roles])
    return Actor("user", name, role=roles[0] if roles else "", auth="session", address="192.0.2.7", person=user.pk)


def signed_in(by: Actor) -> Client:
    client = Client()
    client.force_login(User.objects.get(pk=by.person))
    return client


def boss() -> Actor:
    return somebody("boss", is_superuser=True, is_staff=True)


def buying(tools: Toolbox, amount: int = 5000, declared: str | None = "amount USD") -> Agent:
    assert tools.pay.gate is not None
    pay = replace(tools.pay, gate=replace(tools.pay.gate, amount=declared))

    async def node(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(pay, Item(name="po", amount=amount))).ref)

    return agent_of(node, tools=[pay])


def asked(stage: Stage, tools: Toolbox, amount: int = 5000, declared: str | None = "amount USD") -> Approval:
    stage.start(buying(tools, amount, declared))
    assert stage.drive() == "parked"
    return Approval.objects.get(state="open")


def say(approval: Approval, by: Actor, verdict: str = "approve") -> Approval:
    """Decide it under the queue's role, as page and API do after checking."""
    by = replace(by, role="approver_finance")
    return decide(approval.id, verdict=verdict, plan_hash=approval.plan_hash, justification="as quoted", by=by)


def limited(by: Actor, most: str | None, person: str = "", queue: str = "finance_po") -> None:
    body = LimitBody(person=person, most=None if most is None else Decimal(most), justification=WHY)
    acts.limit(queue, body, by=by)


def known_as(name: str, role: str, *, at: int = 2**62) -> None:
    """Make this process's cache hold only this queue, read at that moment; by default it is never read again."""
    now = timezone.now()
    row = Queue(name=name, title=name, role=role, set_by="user:boss", made_at=now, changed_at=now)
    row.seal()
    columns = {field.attname: getattr(row, field.attname) for field in Queue._meta.concrete_fields}
    text = json.dumps(columns | {"code": f"\\x{row.code.hex()}"}, default=lambda moment: moment.isoformat())
    QUEUES.learn({"at": at, "queues": [[name, role, True, None, text]], "roles": []})


def until_somebody_waits(seconds: float = 30.0) -> None:
    """Return when a connection waits for another's lock, or after this many seconds."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ends = time.monotonic() + seconds
    with psycopg.connect(dsn(), autocommit=True) as link:
        while link.execute(waiting).fetchone() == (0,) and time.monotonic() < ends:
            pass


def one_after_the_other(first: Callable[[], object], second: Callable[[], object]) -> Any:
    """Return the result of `second`, which begins during the open transaction of `first` and has to wait for it."""
    is_held, may_end = threading.Event(), threading.Event()

    def come_first() -> None:
        with transaction.atomic():
            first()
            is_held.set()
            assert may_end.wait(60)

    def come_second() -> object:
        assert is_held.wait(60)
        return second()

    def watch() -> None:
        assert is_held.wait(60)
        until_somebody_waits()
        may_end.set()

    done, answer, _ = at_once(come_first, come_second, watch)
    assert done is None, done
    return answer


def sound(*runs: Run) -> None:
    """Assert that each run's rows and journal agree and verification finds nothing."""
    for run in runs:
        check_against_journal(run)
        assert list(verify(run.pk).problems) == []
