"""People who may not read payloads are told of an approval's time."""

from __future__ import annotations

from durableagents.identity import rights
from ledger.web.roles import OPERATOR
from tests.contrib.calendars.timing import timing
from tests.integration.approvals.setup import WHY, boss
from tests.integration.approvals.test_payloads import _runs, sight
from tests.integration.runs.stage import Stage
from tests.world import SHOP, Outside, Toolbox


def test_an_endless_deadline_is_told_without_the_payload(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    admin = boss()
    timing(admin, on_timeout="remind", every_hours=1)
    run = _runs(stage, tools, outside, SHOP)[0]
    rights.let_role_read_payloads(OPERATOR, False, by=admin, justification=WHY)
    client, key, _ = sight("approver_other", OPERATOR)
    why = client.get(f"/api/v1/runs/{run.pk}/why", headers={"Authorization": f"Bearer {key}"}).json()
    page = client.get(f"/runs/{run.pk}").content.decode()
    sentence = why["status"]["sentence"]
    assert "it has no deadline" in sentence and "rejected if" not in sentence + page
    assert "no deadline, next reminder" in page
