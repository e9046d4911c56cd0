"""Hooks of the installation, and the list of what hooks withheld."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured

from durableagents import ContentRefused, Context, End, Piece, Withhold, screen
from durableagents.checks import check_screens
from durableagents.contrib.screening.api import WithheldPage
from durableagents.contrib.screening.hooks import screens
from runs import features
from runs.workers.engine_runtime import runtime
from tests.integration.api.conftest import Api, caller
from tests.integration.runs.stage import Stage
from tests.world import Item, Notes, Outside, Toolbox, agent_of, only_for_now

__all__ = ["caller"]
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
        body = caller(role).get(path).json()
        assert len(WithheldPage.model_validate(body).results) == 3 and body["next"] is None
    first = caller("auditor").get(f"{path}?limit=2").json()
    assert len(first["results"]) == 2 and first["next"] is not None
    row = first["results"][0]
    assert (row["verdict"], row["hook"], row["version"], row["to"]) == ("refused", "guard", "1", "tool order")
    assert HOSTILE not in str(body) and row["reason"] == "it is <b>poison</b>"
    rest = caller("auditor").get(f"{path}?after={first['results'][-1]['seq']}").json()
    assert len(rest["results"]) == 1


def test_what_is_wrong_is_named(caller: Callable[[Any], Api], run_id: str) -> None:
    assert caller("auditor").get(f"runs/{uuid4()}/withheld").status_code == 404
    assert caller("auditor").get(f"runs/{run_id}/withheld?after=x").status_code in (400, 422)


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("nowhere:hook", "No module named"),
        ("durableagents:nothing", "has no attribute"),
        ("durableagents", "is not a hook"),
        ("durableagents:Agent", "is not a hook"),
        ("durableagents:prompt_injection_markers,runs.engine.content.hooks:prompt_injection_markers", "two screens"),
    ],
)
def test_a_setting_that_names_no_hook_is_refused_in_one_line(settings: Any, named: str, problem: str) -> None:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"screens": named.split(",")})
    with pytest.raises(ImproperlyConfigured, match=problem) as refused:
        screens()
    assert "DURABLEAGENTS_SCREENS" in str(refused.value) and "\n" not in str(refused.value)


def test_hooks_of_the_installation_are_asked_in_every_run(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    named = ["durableagents:prompt_injection_markers"]
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"screens": named})
    assert [each.id for each in runtime().screens] == ["prompt_injection_markers@1"]
    check_screens()
    # Without the app, nothing starts that would ask none of the hooks.
    rest = {name: each for name, each in features.installed.items() if name != "screening"}
    monkeypatch.setattr(features, "installed", rest)
    assert runtime().screens == ()
    with pytest.raises(ImproperlyConfigured, match="screening is not installed"):
        check_screens()
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"screens": []})
    check_screens()
