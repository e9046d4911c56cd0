"""Bulk actions are begun by their requester and can be stopped while anyone works on them."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from durableagents.contrib.bulk import services as acts
from durableagents.contrib.bulk import working
from durableagents.contrib.bulk.models import Batch
from ledger.errors import Forbidden
from tests.contrib.bulk.test_batches import WHY, ask, finish, many, operator, outcomes, sleeper
from tests.waiting import eventually
from tests.world import Toolbox

pytestmark = pytest.mark.usefixtures("stage")


def test_nobody_starts_it_in_somebody_else_s_name_and_who_only_reads_stops_nothing(tools: Toolbox) -> None:
    olga, bert, (one, other) = operator(), operator("bert"), many(sleeper(tools), 2)
    reader = operator("rita", "integrator", "auditor")
    batch = ask(olga, "cancel", runs=[str(one)], start=False)
    for who in (bert, reader):
        with pytest.raises(Forbidden, match="Only user:olga, on whose behalf"):
            acts.start(batch.pk, by=who[0], held=who[1], justification=WHY)
    with pytest.raises(Forbidden, match="and operators may stop it"):
        acts.stop(batch.pk, by=reader[0], held=reader[1], justification=WHY)
    assert not working.work(1) and Batch.objects.get().state == "draft"
    assert acts.stop(batch.pk, by=bert[0], held=bert[1], justification=WHY).state == "stopped"
    again = ask(olga, runs=[str(other)], start=False)
    with_key = replace(olga[0], auth="key")  # the same account through the API
    acts.start(again.pk, by=with_key, held=olga[1], justification=WHY)
    assert outcomes(finish(again)) == {"done": 1}


def test_a_stop_is_next_however_many_are_at_it(tools: Toolbox) -> None:
    olga, ids = operator(), many(sleeper(tools), 3)
    batch = ask(olga, runs=[str(one) for one in ids])
    is_at_it, may_end = threading.Event(), threading.Event()
    items: list[Any] = []

    def at_it() -> None:
        with transaction.atomic():
            assert working._is_active(batch.pk)
            is_at_it.set()
            assert may_end.wait(20)

    def comes_after() -> None:
        with transaction.atomic():
            items.append(working._is_active(batch.pk))

    def in_turn(act: Any) -> threading.Thread:
        def run() -> None:
            try:
                act()
            finally:
                connection.close()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    first = in_turn(at_it)
    assert is_at_it.wait(20)
    stops = in_turn(partial(acts.stop, batch.pk, by=olga[0], held=olga[1], justification="enough"))
    eventually(lambda: waiters() == 1, "the stop waits")
    after = in_turn(comes_after)
    eventually(lambda: waiters() == 2, "later ones wait too")
    may_end.set()
    for thread in (first, stops, after):
        thread.join(20)
    assert items == [False] and Batch.objects.get().state == "stopped"


def waiters() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        return int(cursor.fetchone()[0])
