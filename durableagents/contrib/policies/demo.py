"""The demo's policy. It is published once, and later changes by people are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from durableagents.contrib.policies import services
from durableagents.contrib.policies.models import Policy
from ledger.actors import Actor

POLICY = "large_customer_refunds"


def settings(by: Actor, justification: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the function that publishes the policy, unless a policy of that name ever existed."""
    if Policy.objects.filter(name=POLICY).exists():
        return
    body = services.NewPolicyBody(
        name=POLICY,
        agent="customer-refund",
        tool="refund_customer",
        condition="args.amount_usd > 5000",
        effect="require",
        queue="legal",
        within_hours=48,
        rule="A refund above $5,000 also needs legal",
        justification=justification,
    )
    yield f"policy {POLICY}", partial(services.create, body, by=by)
