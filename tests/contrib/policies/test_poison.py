"""A run that kills its workers is stopped, whatever else is written about it meanwhile."""

from __future__ import annotations

from durableagents.contrib.policies import services as policies
from durableagents.contrib.policies.services import NewPolicyBody
from ledger import events as e
from ledger.actors import Actor
from runs.workers.failover import MAX_DEATHS
from tests.integration.runs.stage import Stage, events, fresh
from tests.integration.runs.test_incidents import buying, dies
from tests.integration.runs.test_poison import FIRST_THEN_COUNTED, counted
from tests.world import Toolbox


def test_what_policies_say_of_a_call_that_is_sent_again_is_no_progress(stage: Stage, tools: Toolbox) -> None:
    agent = buying(tools, "order")
    fields = {"name": "none", "effect": "deny", "rule": "never", "tool": "pay", "justification": "agreed"}
    policies.create(NewPolicyBody(**fields), by=Actor("os", "root", auth="shell"))
    run = stage.start(agent)
    for _ in range(MAX_DEATHS + 1):
        dies(stage, run, "CP4", "order")
    assert str(fresh(run).state) == "waiting_human" and counted(run) == FIRST_THEN_COUNTED
    assert len(events(run, e.PolicyApplied)) > 2
