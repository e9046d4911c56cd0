"""What hooks kept back, over HTTP and on the run's page: told to everybody who may see runs, and never the content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from durableagents import ContentRefused, Context, End, Piece, Withhold, screen
from runs.api.screening import WithheldPage
from tests.integration.api.conftest import Api
from tests.integration.runs.stage import Stage
from tests.world import Item, Notes, Outside, Toolbox, agent_of, only_for_now

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = "poison <script>alert(1)</script>"


@screen(version="1")
def guard(piece: Piece) -> Withhold | None:
    return Withhold("it is <b>poison</b>") if "poison" in str(piece.content) else None


@pytest.fixture
def run_id(transactional_db: None) -> Iterator[str]:
    tools = Toolbox(Outside())

    async def node(state: Notes, ctx: Context) -> End:
        for n in range(3):
            try:
                await ctx.call(tools.order, Item(name=f"{HOSTILE} {n}"))
            except ContentRefused:
                continue
        return End()

    stage = Stage()
    stage.screens = (guard,)
    with only_for_now():
        run = stage.start(agent_of(node, tools=tools.all()))
        assert stage.settle(run) == "completed"
        yield str(run.id)
    stage.close()


def test_verdicts_are_told_page_by_page(caller: Callable[[Any], Api], run_id: str) -> None:
    path = f"runs/{run_id}/withheld"
    assert caller("integrator").get(path).status_code == 404, "it is somebody else's"
    for role in ("operator", "approver_finance", "auditor"):
        told = caller(role).get(path).json()
        assert len(WithheldPage.model_validate(told).results) == 3 and told["next"] is None
    first = caller("auditor").get(f"{path}?limit=2").json()
    assert len(first["results"]) == 2 and first["next"] is not None
    row = first["results"][0]
    assert (row["verdict"], row["hook"], row["version"], row["to"]) == ("refused", "guard", "1", "tool order")
    assert HOSTILE not in str(told) and row["reason"] == "it is <b>poison</b>"
    rest = caller("auditor").get(f"{path}?after={first['results'][-1]['seq']}").json()
    assert len(rest["results"]) == 1


def test_what_is_wrong_is_named(caller: Callable[[Any], Api], run_id: str) -> None:
    assert caller("auditor").get(f"runs/{uuid4()}/withheld").status_code == 404
    assert caller("auditor").get(f"runs/{run_id}/withheld?after=x").status_code in (400, 422)
