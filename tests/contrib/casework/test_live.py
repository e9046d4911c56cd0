"""Sockets say that something changed, and tell nothing to people without access."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from channels.db import database_sync_to_async
from django.db import transaction
from pytest_django.plugin import _django_db_marker  # noqa: F401 (the folder's takes no transaction=True)

from approvals.models import Approval
from approvals.services import decide
from durableagents.contrib.casework import delegations, inquiries
from runs.console import socket_watch
from runs.services import command, lifecycle
from tests.contrib.calendars.test_live import listening, moved
from tests.integration.console.conftest import OLGA, Reader, agent, finance, reader, start  # noqa: F401 (fixtures)
from tests.integration.console.stage import question, settled, working
from tests.integration.console.test_live import _soon, by, socket  # noqa: F401 (fixture)

pytestmark = pytest.mark.django_db(transaction=True)


WHY = "as agreed with them"


@pytest.fixture
def ivan(reader: Callable[..., Reader]) -> Reader:
    return reader("integrator", name="ivan")


@pytest.fixture
def ira(reader: Callable[..., Reader]) -> Reader:
    return reader("integrator", name="ira")


@pytest.fixture
def case() -> Approval:
    run = start()
    with working():
        settled(run, "waiting_human")
    return question(run)


async def test_the_one_asked_alone_hears_of_it(finance: Reader, ira: Reader, ivan: Reader, case: Approval) -> None:
    asker, person = await database_sync_to_async(by)(finance), await database_sync_to_async(by)(ira)
    read = database_sync_to_async(ira.read)
    async with listening(ira) as hers, listening(ivan) as his:
        await moved(hers, inquiries.ask, case.id, to="ira", question="Do you know them?", by=asker)
        assert "asked you" in await read("/inbox") and await his.is_quiet()
        await moved(hers, inquiries.answer, case.id, 0, answer="For ten years.", by=person)
        await moved(hers, inquiries.ask, case.id, to="ira", question="And their bank?", by=asker)
        await moved(hers, inquiries.withdraw, case.id, 1, justification=WHY, by=asker)
        assert await his.is_quiet(), "it is nobody else's business"


async def test_a_delegate_hears_of_start_and_end(finance: Reader, ira: Reader, ivan: Reader, case: Approval) -> None:
    principal = await database_sync_to_async(by)(finance)
    async with listening(ira) as hers, listening(ivan) as his:
        await moved(hers, delegations.delegate, case.id, to="ira", justification=WHY, by=principal)
        assert "delegated to you" in await database_sync_to_async(ira.read)("/inbox")
        await moved(hers, delegations.take_back, case.id, 0, justification=WHY, by=principal)
        assert await his.is_quiet()


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
        assert await hers.is_quiet(), "other events of the run are not sent to people who may not see them"
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
        # Anybody with write access may send events: a page reloads, with its reader's rights.
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
