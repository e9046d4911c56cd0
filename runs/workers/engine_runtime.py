"""The engine's runtime, made from the settings."""

from __future__ import annotations

from django.conf import settings

from runs import failpoints, features
from runs.engine.pipeline import in_order
from runs.engine.runtime import Runtime
from runs.engine.secrets import NoSecrets
from runs.engine.thinking.request import request_model
from runs.engine.threads import ToolThreads
from runs.journal.asked.policies import InForce
from runs.journal.asked.queues import QUEUES, QueueNames
from runs.journal.digests import call_secret, hasher
from runs.journal.libpq import Pool
from runs.services.budgets import prices


def callback_url(token: str) -> str:
    return f"{settings.DURABLEAGENTS.base_url}/api/v1/callbacks/{token}"


def runtime(threads: ToolThreads | None = None, pool: Pool | None = None) -> Runtime:
    """Return a worker's runtime. `pool` provides the connections for reads while runs are driven."""
    return Runtime(
        guards=in_order(features.parts_of_all(lambda each: each.guards)),
        hasher=hasher(),
        call_secret=call_secret(),
        request_model=request_model,
        callback_url=callback_url,
        hit=failpoints.hit,
        models=prices.models_of,
        route=prices.route,
        budget_queue=settings.DURABLEAGENTS.budget_queue,
        threads=threads or ToolThreads(),
        screens=(features.only(lambda each: each.screens) or tuple)(),
        queues=QueueNames(QUEUES, has_roles=False, pool=pool),
        people=QueueNames(QUEUES, has_roles=True, pool=pool),
        policies=InForce(features.only(lambda each: each.policies), pool),
        shows_documents=features.only(lambda each: each.store_documents) is not None,
        secrets=features.only(lambda each: each.secrets) or NoSecrets(),
        refuses_other_code=settings.DURABLEAGENTS.is_production,
    )
