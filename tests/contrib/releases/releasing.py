"""Two versions of an agent, a fleet that serves them, and ramps between them."""

from __future__ import annotations

from typing import Any

from durableagents.contrib.releases import services
from durableagents.contrib.releases.models import Ramp
from durableagents.contrib.releases.services import RaiseBody, RampActBody, RampBody
from ledger import events as e
from runs.models import Run
from tests.integration.runs.stage import events
from tests.integration.runs.two_versions import NAME
from tests.world import OLGA

WHY = "as the release plan says"


def ramp(share: Any = 50, **more: Any) -> Ramp:
    body = {"agent": NAME, "from_version": "1.0.0", "to_version": "2.0.0", "share": share, "justification": WHY}
    return services.create_ramp(RampBody.model_validate(body | more), by=OLGA)


def seen(of: Ramp, **more: Any) -> RampActBody:
    return RampActBody(revision=of.revision, justification=WHY, **more)


def raised(of: Ramp, share: Any) -> Ramp:
    return services.raise_ramp(of.pk, RaiseBody(share=share, justification=WHY), by=OLGA)


def told(run: Run) -> e.VersionAssigned:
    (one,) = events(run, e.VersionAssigned)
    return one
