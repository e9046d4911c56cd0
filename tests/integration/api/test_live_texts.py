"""What a run's models are saying right now, for whoever may read the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from runs.models import Listener, Run
from tests.integration.api.conftest import Api
from tests.integration.console.test_overheard import say

pytestmark = pytest.mark.django_db


def test_it_is_told_as_it_stands_and_to_ask_is_to_listen(
    caller: Callable[[Any], Api], start: Callable[..., Any]
) -> None:
    run = Run.objects.get(pk=start()["id"])
    say(run, "half a <b>sentence</b>")
    answer = caller("auditor").get(f"runs/{run.id}/live")
    assert answer.status_code == 200
    (one,) = answer.json()["results"]
    assert (one["slot"], one["text"], one["characters"]) == ("0.1/1/0/0", "half a <b>sentence</b>", 22)
    assert Listener.objects.filter(run_id=run.id).exists()


def test_of_no_run_there_is_nothing(caller: Callable[[Any], Api]) -> None:
    assert caller("auditor").get(f"runs/{uuid4()}/live").status_code == 404
