"""The guards of calls, in the order in which calls meet them."""

from __future__ import annotations

from runs.engine.guards import Guard
from runs.engine.steps.arguments import CERTIFICATES, SCREENING
from runs.engine.steps.forks import FORK_FENCE
from runs.engine.steps.permits import PERMITS
from runs.engine.steps.policies import POLICIES
from runs.engine.steps.reads import READ_CACHE

GUARDS: tuple[Guard, ...] = (CERTIFICATES, SCREENING, FORK_FENCE, POLICIES, READ_CACHE, PERMITS)
