"""Sockets say that something changed, and tell nothing to people without access."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from channels.db import database_sync_to_async
from pytest_django.plugin import _django_db_marker  # noqa: F401 (the folder's takes no transaction=True)

from approvals.models import Approval
from durableagents.contrib.casework import inquiries
from tests.contrib.calendars.timing import away
from tests.integration.console.conftest import Reader, agent, finance, reader, start  # noqa: F401 (fixtures)
from tests.integration.console.stage import question, settled, working
from tests.integration.console.test_live import Link, _soon, by, socket  # noqa: F401 (fixture)

pytestmark = pytest.mark.django_db(transaction=True)


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


@asynccontextmanager
async def listening(who: Reader) -> AsyncIterator[Link]:
    """Open this reader's list socket and consume what was pending."""
    link = socket(who, "/ws/lists")
    assert await link.connect()
    while not await link.is_quiet():
        await link.hear_any()
    yield link
    await link.leave()


async def moved(link: Link, act: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """Return the act's result; assert that the list was told of a change and nothing else."""
    done = await database_sync_to_async(act)(*args, **given)
    hear_any = await link.hear_any()
    assert (set(hear_any), hear_any["run"], hear_any["seq"]) == ({"run", "seq", "at"}, None, 0)
    while not await link.is_quiet():
        await link.hear_any()
    return done


async def test_a_deputy_hears_the_answer(finance: Reader, ira: Reader, ivan: Reader, case: Approval) -> None:
    principal, deputy, question = [await database_sync_to_async(by)(who) for who in (finance, ira, ivan)]
    await database_sync_to_async(away)(principal, "ira")
    acting = replace(deputy, role="approver_finance")
    await database_sync_to_async(inquiries.ask)(case.id, to="ivan", question="Do you know them?", by=acting)
    async with listening(ira) as hers:
        await moved(hers, inquiries.answer, case.id, 0, answer="For ten years.", by=question)
