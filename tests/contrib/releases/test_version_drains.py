"""Workers limited to some versions or draining one: they drive what was begun and begin nothing."""

from __future__ import annotations

from durableagents.contrib.releases import services
from runs.engine.agents import registry
from runs.services.version_choice import elsewhere
from tests.contrib.releases.releasing import WHY
from tests.integration.runs.stage import Stage
from tests.integration.runs.two_versions import NAME, served, versions
from tests.world import OLGA


def test_what_another_process_should_start_is_left_to_it(stage: Stage) -> None:
    old, new = versions()
    served(stage, old, new)
    assert elsewhere(NAME) == ""
    registry.remove(new.graph_id)
    assert elsewhere(NAME) == new.graph_id and elsewhere(old.graph_id) == ""
    services.close_version(NAME, "2.0.0", by=OLGA, justification=WHY)
    assert elsewhere(NAME) == ""
