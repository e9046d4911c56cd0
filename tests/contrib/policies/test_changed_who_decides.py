"""A person who changed who decides after a question was asked can't decide it, by any way and under any name."""

from __future__ import annotations

import pytest

from durableagents.contrib.policies import services as policies
from durableagents.contrib.policies.services import NewPolicyBody, PolicyBody
from ledger.actors import Actor
from tests.integration.approvals.setup import WHY, asked, buying, say, somebody
from tests.integration.approvals.test_changed_who_decides import FINANCE, refused
from tests.integration.runs.stage import Stage
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(stage: Stage) -> Actor:
    return somebody("root", is_superuser=True, is_staff=True)


@pytest.fixture
def ada(stage: Stage) -> Actor:
    return somebody("ada", FINANCE, is_superuser=True, is_staff=True)


def test_a_policys_words_decide_nothing(stage: Stage, tools: Toolbox, ada: Actor, root: Actor) -> None:
    fields = {"agent": "", "tool": "pay", "effect": "require", "queue": "legal"}
    approval = asked(stage, tools)
    policies.create(NewPolicyBody(name="words", rule="large", **fields, justification=WHY), by=root)
    policies.change("words", PolicyBody(rule="of large sums", **fields, justification=WHY), by=ada)
    assert say(approval, ada).state == "approved"


@pytest.mark.parametrize(("agent", "tool", "is_here"), [("", "pay", True), ("this", "", True), ("other", "pay", False)])
def test_who_changed_what_policies_ask_for_it_does_not_decide(
    stage: Stage, tools: Toolbox, ada: Actor, root: Actor, agent: str, tool: str, is_here: bool
) -> None:
    approval, other = asked(stage, tools), buying(tools)
    named = {"": "", "this": approval.run.agent, "other": other.name}[agent]
    fields = {"name": "board", "agent": named, "tool": tool, "effect": "require", "queue": "legal", "rule": "large"}
    policies.create(NewPolicyBody(**fields, justification=WHY), by=root)
    policies.retire("board", by=ada, justification=WHY)
    if is_here:
        refused(approval, ada)
    else:
        assert say(approval, ada).state == "approved"
