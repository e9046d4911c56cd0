"""The pages of queues, policies, calendars and deadlines: administrators set them up, everybody else reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from durableagents.contrib.policies.models import Policy
from tests.integration.console.conftest import Reader, agent, reader  # noqa: F401 (fixtures)
from tests.integration.console.test_queues import SENT, boss, page

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(db: None) -> Reader:
    return Reader(User.objects.create_superuser("boss"))


def test_everybody_reads_and_an_administrator_sets(reader: Callable[..., Reader]) -> None:
    admin = boss()
    assert admin.post("/policies/new", **SENT).status_code == 302
    found = page(reader("integrator"))
    assert "Dear things need the law" in found and "cost &gt; 5" in found and "policy-form" not in found
    assert "policy-form" in page(admin)
    assert reader("operator").post("/policies/new", **SENT | {"name": "more"}).status_code == 403
    assert Policy.objects.count() == 1


@pytest.mark.usefixtures("db")
def test_what_is_refused_is_said_at_its_field_and_kept() -> None:
    admin = boss()
    answer = admin.post("/policies/new", **SENT | {"condition": "cost > much"})
    text = answer.content.decode()
    assert answer.status_code == 422 and "t a number (character 8)" in text and "cost &gt; much" in text
    answer = admin.post("/policies/new", **SENT | {"agent": "", "condition": ""})
    text = answer.content.decode()
    assert answer.status_code == 422 and "every call of every agent" in text and 'name="confirm"' in text
    assert not Policy.objects.exists()
    assert admin.post("/policies/new", **SENT | {"within_hours": "soon"}).status_code == 422
    assert admin.post("/policies/of/nothing/retirements", justification="none").status_code == 404
