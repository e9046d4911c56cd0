"""The feature of this app: one job makes seals, and one job for each witness delivers them."""

from __future__ import annotations

from functools import partial

from django.conf import settings

from durableagents.contrib.seals import sealing, witnesses
from durableagents.contrib.seals.metrics import read_metrics
from durableagents.contrib.seals.verification import every_seal, every_seal_witness
from runs.background import Duty
from runs.features import Feature

SEAL = "seals: sealing"


def feature() -> Feature:
    """Return the feature, with the witnesses in the settings."""
    deliveries = tuple(
        Duty(f"seals: witness {n}", witnesses.is_due(witness), partial(witnesses.deliver, witness))
        for n, witness in enumerate(settings.DURABLEAGENTS.seal_witnesses, 1)
    )
    return Feature(
        name="seals",
        periodic=(
            Duty(SEAL, sealing.IS_DUE, sealing.seal_when_due, then=tuple(each.name for each in deliveries)),
            *deliveries,
        ),
        metrics=(read_metrics,),
        record_checks=(every_seal, every_seal_witness),
    )
