"""Devices that are set up in the same moment: of one account, of two, and more than there may be."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from approvals.models import Device
from approvals.notices import phones
from ledger.errors import InvalidInput
from tests.approvals.push_service import Service
from tests.approvals.setup import somebody
from tests.approvals.test_phones import FINANCE, service, subscribed
from tests.runs.stage import Stage, at_once

__all__ = ["service"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("people", [1, 2])
def test_one_that_is_set_up_twice_at_once_is_one(stage: Stage, service: Service, people: int) -> None:
    by, phone = [somebody(name, FINANCE) for name in ("fiona", "frank")][:people], service.device()
    answers = at_once(*[partial(subscribed, by[n % people], phone) for n in range(8)])
    assert all(isinstance(each, Device) for each in answers), answers
    assert Device.objects.filter(ended_at__isnull=True).count() == 1 and Device.objects.count() == 8


def test_ten_are_enough_at_once_too(stage: Stage, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phones, "MOST", 2)
    fiona = somebody("fiona", FINANCE)
    answers: list[Any] = at_once(*[partial(subscribed, fiona, service.device()) for _ in range(8)])
    assert sum(isinstance(each, InvalidInput) for each in answers) == 6, answers
    assert Device.objects.filter(ended_at__isnull=True).count() == 2
