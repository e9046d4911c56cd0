"""A move of a run that stands beside another one which does the same work."""

from __future__ import annotations

import pytest

from runs.services import lifecycle
from tests.runs.moving import moved, old, renamed, seen
from tests.runs.stage import Stage, dump, fresh
from tests.runs.test_forks import fork
from tests.runs.test_migrating import go, names, parked, sound
from tests.world import OLGA, Outside, Toolbox

pytestmark = pytest.mark.django_db
WHY = "the old one is wrong"


def test_no_move_answers_a_stop_beside_a_fork_that_is_at_work(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """A retry would be refused for the same reason; once the fork is over and has done nothing, the move is made."""
    agent = old(tools)
    run = parked(stage, agent)
    hold = agent.nodes.pop("hold")
    go(run)
    assert stage.settle(run) == "operator"
    agent.nodes["hold"] = hold
    made = fork(run, 2)
    renamed(tools)
    before = dump()
    assert (seen(run).code, moved(run).code) == ("beside", "beside")
    assert str(made.pk) in moved(run).why and dump() == before
    lifecycle.cancel(made.pk, by=OLGA, justification=WHY)
    assert stage.settle(made) in ("cancelled", "idle") and fresh(made).state == "cancelled"
    assert moved(run).is_moved
    assert stage.settle(run) == "completed" and names(outside) == ["first", "new end"]
    sound(run)
