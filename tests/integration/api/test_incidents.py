"""Recoveries as clients see them: in the documented shape, by page and filter, hostile names inert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from ledger.clock import database_now
from runs.api.schemas import IncidentPage
from runs.models import Incident
from tests.integration.api.conftest import Api, is_problem
from tests.integration.api.test_pages import follow

pytestmark = pytest.mark.django_db


def lose(run_id: str, seq: int = 1, *, host: str = "one", cause: str = "proof", call: str = "") -> int:
    now = database_now()
    in_doubt = [
        {"slot": "0.1/1", "attempt": 0, "tool": call, "replay_class": "unsafe_on_replay", "intent_at": now.isoformat()}
    ]
    row = Incident.objects.create(
        run_id=UUID(run_id),
        seq=seq,
        at=now,
        cause=cause,
        proof="reaped",
        worker=uuid4(),
        host=host,
        pid=42,
        epoch=1,
        reached="intent_durable",
        in_doubt=in_doubt if call else [],
        replayed=3,
        is_counted=False,
        deaths=0,
        is_stopped=False,
        last_sign_at=now,
        detected_at=now,
    )
    return row.id


def test_they_come_newest_first_in_their_documented_shape(auditor: Api, start: Callable[..., Any]) -> None:
    run = start()["id"]
    ids = [lose(run, seq, call="mail") for seq in (1, 2, 3)]
    answer = auditor.get("incidents").json()
    IncidentPage.model_validate_json(auditor.get("incidents").content)
    assert [row["id"] for row in answer["results"]] == ids[::-1]
    assert answer["results"][0]["calls"][0] | {"intent_at": ""} == {
        "slot": "0.1/1",
        "attempt": 0,
        "tool": "mail",
        "replay_class": "unsafe_on_replay",
        "intent_at": "",
        "fate": "open",
        "why": "nobody has come to it yet",
    }
    for limit in (1, 2, 3):
        assert [row["id"] for row in follow(auditor, f"incidents?limit={limit}")] == ids[::-1]


def test_what_names_nothing_is_refused_in_words(operator: Api, start: Callable[..., Any]) -> None:
    for query in ("cause=magic", "run=1", "before=-1", "host=%00", "nonsense=1"):
        assert is_problem(operator.get(f"incidents?{query}"), 400)
    assert is_problem(operator.get(f"runs/{uuid4()}/incidents"), 404)
