"""Whoever is asked about a case, or handed it, hears of it on their open pages, live; and nobody else does.

Somebody with a wider role than an integrator's sees every run, and their lists are told when anything moves. Here is
who sees none of the run: an integrator whose run it isn't.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.db import transaction

from approvals.consulting import delegations, inquiries
from approvals.models import Approval
from approvals.services import decide
from ledger.actors import Actor
from ledger.web.roles import roles
from runs.console import socket_watch, sockets
from runs.journal import notify
from runs.services import command, lifecycle
from tests.integration.approvals.setup import away
from tests.integration.console.conftest import OLGA, Reader, start
from tests.integration.console.stage import question, settled, working
from tests.integration.console.test_live import Link, socket

pytestmark = pytest.mark.django_db(transaction=True)
WHY = "as agreed with them"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "OWN_SECONDS", 0.05)
    monkeypatch.setattr(socket_watch, "CHECK_SECONDS", 0.1)


@pytest.fixture
def case() -> Approval:
    run = start()
    with working():
        settled(run, "waiting_human")
    return question(run)


@pytest.fixture
def ira(reader: Callable[..., Reader]) -> Reader:
    return reader("integrator", name="ira")


@pytest.fixture
def ivan(reader: Callable[..., Reader]) -> Reader:
    return reader("integrator", name="ivan")


def by(who: Reader) -> Actor:
    assert who.user is not None
    return Actor("user", who.user.username, role=min(roles(who.user)), auth="session", person=who.user.pk)


@asynccontextmanager
async def listening(who: Reader) -> AsyncIterator[Link]:
    """Somebody's list, which has heard what there was to be heard."""
    link = socket(who, "/ws/lists")
    assert await link.connect()
    while not await link.is_quiet():
        await link.hear_any()
    yield link
    await link.leave()


async def moved(link: Link, act: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """What the act gives, of which the list was told: that something moved, and not what."""
    done = await database_sync_to_async(act)(*args, **given)
    told = await link.hear_any()
    assert (set(told), told["run"], told["seq"]) == ({"run", "seq", "at"}, None, 0)
    while not await link.is_quiet():
        await link.hear_any()
    return done


async def test_who_is_asked_hears_of_it_and_of_its_end_and_nobody_else_does(
    finance: Reader, ira: Reader, ivan: Reader, case: Approval
) -> None:
    asker, person = await database_sync_to_async(by)(finance), await database_sync_to_async(by)(ira)
    read = database_sync_to_async(ira.read)
    async with listening(ira) as hers, listening(ivan) as his:
        await moved(hers, inquiries.ask, case.id, to="ira", question="Do you know them?", by=asker)
        assert "asks you" in await read("/inbox") and await his.is_quiet()
        await moved(hers, inquiries.answer, case.id, 0, answer="For ten years.", by=person)
        await moved(hers, inquiries.ask, case.id, to="ira", question="And their bank?", by=asker)
        await moved(hers, inquiries.withdraw, case.id, 1, justification=WHY, by=asker)
        assert await his.is_quiet(), "it is nobody else's business"


async def test_who_is_handed_a_case_hears_of_it_and_that_it_was_taken_back(
    finance: Reader, ira: Reader, ivan: Reader, case: Approval
) -> None:
    principal = await database_sync_to_async(by)(finance)
    async with listening(ira) as hers, listening(ivan) as his:
        await moved(hers, delegations.delegate, case.id, to="ira", justification=WHY, by=principal)
        assert "handed to you" in await database_sync_to_async(ira.read)("/inbox")
        await moved(hers, delegations.take_back, case.id, 0, justification=WHY, by=principal)
        assert await his.is_quiet()


async def test_a_deputy_who_asks_hears_of_the_answer(
    finance: Reader, ira: Reader, ivan: Reader, case: Approval
) -> None:
    principal, deputy, asked = [await database_sync_to_async(by)(who) for who in (finance, ira, ivan)]
    await database_sync_to_async(away)(principal, "ira")
    acting = replace(deputy, role="approver_finance")
    await database_sync_to_async(inquiries.ask)(case.id, to="ivan", question="Do you know them?", by=acting)
    async with listening(ira) as hers:
        await moved(hers, inquiries.answer, case.id, 0, answer="For ten years.", by=asked)


@pytest.mark.parametrize("how", ["decide", "cancel"])
async def test_who_is_asked_hears_that_the_case_is_over_and_of_nothing_else_in_its_run(
    finance: Reader, ira: Reader, case: Approval, how: str
) -> None:
    asker = await database_sync_to_async(by)(finance)
    await database_sync_to_async(inquiries.ask)(case.id, to="ira", question="Do you know them?", by=asker)
    end = {
        "decide": lambda: decide(case.id, verdict="reject", plan_hash=case.plan_hash, justification=WHY, by=asker),
        "cancel": lambda: lifecycle.cancel(case.run_id, by=OLGA, justification=WHY),
    }[how]
    async with listening(ira) as hers:
        await database_sync_to_async(lifecycle.pause)(case.run_id, by=OLGA, justification=WHY)
        await database_sync_to_async(lifecycle.resume)(case.run_id, by=OLGA, justification=WHY)
        await database_sync_to_async(start)()
        assert await hers.is_quiet(), "what else goes on in the run is not told to whoever may not see it"
        await moved(hers, end)


async def test_what_is_undone_is_told_to_nobody_and_a_ring_of_anybodys_tells_nothing(
    finance: Reader, ira: Reader, ivan: Reader, case: Approval
) -> None:
    asker = await database_sync_to_async(by)(finance)

    def undone() -> None:
        with transaction.atomic():
            inquiries.ask(case.id, to="ira", question="Do you know them?", by=asker)
            transaction.set_rollback(True)

    async with listening(ira) as hers, listening(ivan) as his:
        await database_sync_to_async(undone)()
        assert await hers.is_quiet()
        # Whoever may write to the database may ring: a page is read again by it, with what its person may read.
        assert ira.user is not None
        await moved(hers, command.show_to, ira.user.pk)
        assert await his.is_quiet()


async def test_whose_role_is_taken_hears_nothing_more(finance: Reader, ira: Reader, case: Approval) -> None:
    asker = await database_sync_to_async(by)(finance)
    link = socket(ira, "/ws/lists")
    assert await link.connect()
    assert ira.user is not None
    await database_sync_to_async(ira.user.groups.clear)()
    assert await link.closed() == socket_watch.NOT_ALLOWED
    with pytest.raises(Exception, match="no role"):
        await database_sync_to_async(inquiries.ask)(case.id, to="ira", question="Do you know them?", by=asker)


def test_processes_of_before_pass_over_what_is_rung_for_a_person() -> None:
    payload = f"{notify.mark_of(7)},00000000-0000-0000-0000-000000000001:4,@1795671034000000"
    assert list(notify.parse(payload)) == [("00000000-0000-0000-0000-000000000001", 4)]
    assert notify.moment_of(payload) == 1795671034000000
    heard = [notify.Subscription(None, person=person) for person in (7, 77, None)]
    for each in heard:
        each.hear(payload)
    assert [notify.mark_of(7) in each._pending for each in heard] == [True, False, False]
