"""Forged rows of decisions, queues and records: none counts, and verification names each."""

from __future__ import annotations

import pytest

from durableagents.contrib.change_control.models import FourEyes
from durableagents.contrib.releases.models import Ramp
from ledger.verification.registers import verify_registers
from runs.models import Run
from tests.integration.approvals.test_forged_decisions import act, busy, change, said_so  # noqa: F401 (fixture)

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]


@said_so
def test_lists_that_go_by_acts_bear_acts_that_say_no_state(busy: Run, said: str) -> None:
    """Rows define what is in force; a stray act is someone's forgery."""
    FourEyes.objects.create(n=1, families=["policies"], set_by="user:x", at="2026-11-26T00:00Z")
    ramp = Ramp.objects.create(
        agent="a",
        from_version="1",
        to_version="2",
        bounds={},
        least=1,
        share=5,
        set_by="user:x",
        made_at="2026-11-26T00:00Z",
    )
    proposed = change(said)
    for action, subject in (("four_eyes", "x"), ("rule_change", f"change {proposed}"), ("ramp", f"ramp {ramp.pk}")):
        act(said, action, subject=subject)
    found = {each.name: each.problems for each in verify_registers()}
    assert any(each.startswith("two-person rule '1'") for each in found["protected rows"])
    assert any(each.startswith(f"ramp {ramp.pk}") for each in found["releases"])
    assert not any("interpreted" in each for problems in found.values() for each in problems)
