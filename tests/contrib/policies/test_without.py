"""Without the app, processes don't start while policies are in force."""

from __future__ import annotations

import pytest

from durableagents.contrib.policies import services
from runs import features
from runs.journal.asked.policies import refusal
from tests.contrib.policies.test_policies import WHY, put
from tests.integration.approvals.setup import boss
from tests.integration.runs.stage import Stage

pytestmark = pytest.mark.django_db


def test_processes_start_without_the_app_once_its_policies_are_retired(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = boss()
    put(admin, tool="", confirm=services.EVERY_CALL)
    assert refusal() is None
    monkeypatch.delitem(features.installed, "policies")
    assert "policies are in force (1)" in str(refusal()) and "durableagents.contrib.policies" in str(refusal())
    services.retire("orders", by=admin, justification=WHY)
    assert refusal() is None
