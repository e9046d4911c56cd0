"""`Idempotency-Key`: one key is one request, whatever the network and the clients do."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from runs.models import IdempotencyRecord, Run
from runs.services.idempotency import _lock_number
from runs.workers import timers
from tests.cases import each_case
from tests.integration.api.conftest import START, Api, is_problem


def keyed(api: Api, key: str, body: Any = START) -> Any:
    return api.post("runs", body, headers={"Idempotency-Key": key})


def test_a_repeat_is_the_same_bytes_and_no_second_run(integrator: Api, operator: Api) -> None:
    first = keyed(integrator, "k-1")
    assert first.status_code == 201
    operator.post(f"runs/{first.json()['id']}/pause", {"justification": "so that the run looks different now"})
    again = keyed(integrator, "k-1")
    assert (again.status_code, again.content, again["Location"]) == (201, first.content, first["Location"])
    assert Run.objects.count() == 1


@pytest.mark.needs
def test_a_start_costs_few_statements_and_its_repeat_fewer(integrator: Api) -> None:
    """Each statement waits for the server and for this process, and the run is not durable until all are done."""

    def costs() -> list[str]:
        with CaptureQueriesContext(connection) as found:
            assert keyed(integrator, "k-2").status_code == 201
        return [each["sql"] for each in found if "SAVEPOINT" not in each["sql"]]

    integrator.get("runs")  # notes that the key is used
    integrator.post("runs", START)  # notes that the version is used
    whose, kept_answer, _version, defaults, start, key, own_key, act, keep = costs()
    assert "encryption_runkey" in own_key  # the answer is kept under the key of its run
    assert "runs_budgetdefault" in defaults
    assert "durableagents_apikey" in whose and "runs_start(" in start and "ledger_actrecord" in act
    assert "INSERT INTO encryption_runkey" in key
    assert "runs_answer_to(" in kept_answer and "INSERT INTO runs_idempotencyrecord" in keep
    assert len(costs()) == 2


def test_a_body_that_means_the_same_is_the_same_body(integrator: Api) -> None:
    first = keyed(integrator, "k-1")
    shuffled = integrator.client.generic(
        "POST",
        "/api/v1/runs",
        b' {"input":{"amount":2, "item":"ch\\u0061ir"},\n"agent":"order@1.0.0"} ',
        content_type="application/json",
        headers=integrator.headers | {"Idempotency-Key": "k-1"},
    )
    assert shuffled.content == first.content


def test_another_body_under_the_same_key_is_refused(integrator: Api) -> None:
    keyed(integrator, "k-1")
    other = keyed(integrator, "k-1", START | {"input": {"item": "table", "amount": 2}})
    assert is_problem(other, 422, "idempotency-mismatch") and Run.objects.count() == 1


def test_a_key_is_kept_forever(integrator: Api) -> None:
    """A client may come back after a year and repeat a request whose outcome it doesn't know."""
    first = keyed(integrator, "k-1")
    IdempotencyRecord.objects.update(created_at=F("created_at") - timedelta(days=366))
    timers.retire()
    assert keyed(integrator, "k-1").content == first.content
    assert Run.objects.count() == 1


def test_keys_belong_to_who_uses_them(integrator: Api, operator: Api) -> None:
    assert keyed(integrator, "k-1").json()["id"] != keyed(operator, "k-1").json()["id"]


def test_a_refused_request_uses_up_no_key(integrator: Api) -> None:
    assert is_problem(keyed(integrator, "k-1", START | {"input": {"item": "", "amount": 2}}), 422)
    assert IdempotencyRecord.objects.count() == 0
    assert keyed(integrator, "k-1").status_code == 201


@each_case("key", ["", " ", "two words", "a" * 256, "ü", "tab\there"])
def test_a_key_that_is_none_is_refused(integrator: Api, key: str) -> None:
    assert is_problem(keyed(integrator, key), 400, "malformed") and Run.objects.count() == 0


def test_without_a_key_every_request_is_a_run(integrator: Api) -> None:
    assert len({integrator.post("runs", START).json()["id"] for _ in range(3)}) == 3


@contextmanager
def held(key: str, principal: str = "") -> Iterator[None]:
    """Hold this key in another request of the principal, by default the integrator."""
    principal = principal or f"user:{get_user_model().objects.get(username='integrator').pk}"
    holding, release = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_lock_number(principal, key)])
                holding.set()
                release.wait(30)
        finally:
            connection.close()

    other = threading.Thread(target=hold)
    other.start()
    try:
        assert holding.wait(30)
        yield
    finally:
        release.set()
        other.join()


@pytest.mark.django_db(transaction=True)
def test_while_the_first_is_in_progress_a_repeat_is_told_so(integrator: Api) -> None:
    with held("k-1"):
        assert is_problem(keyed(integrator, "k-1"), 409, "idempotency-in-progress")
    assert keyed(integrator, "k-1").status_code == 201


@pytest.mark.django_db(transaction=True)
def test_repeats_at_once_do_not_keep_the_answer_from_each_other(integrator: Api) -> None:
    first = keyed(integrator, "k-1")
    with held("k-1"):
        again = keyed(integrator, "k-1")
        other = keyed(integrator, "k-1", START | {"input": {"item": "table", "amount": 2}})
    assert (again.status_code, again.content) == (201, first.content)
    assert is_problem(other, 422, "idempotency-mismatch") and Run.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_sixteen_at_once_make_one_run(integrator: Api) -> None:
    answers: list[Any] = []
    ready = threading.Barrier(16)

    def ask() -> None:
        api = Api(None)
        api.headers = integrator.headers
        try:
            ready.wait(30)
            answers.append(keyed(api, "k-1"))
        finally:
            connection.close()

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = Counter(answer.status_code for answer in answers)
    assert set(seen) <= {201, 409} and seen[201] >= 1, seen
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert Run.objects.count() == 1
