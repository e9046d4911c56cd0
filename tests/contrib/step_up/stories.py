"""A run whose approvals are signed, for tests/integration/runs/test_verification.py."""

from __future__ import annotations

from dataclasses import replace

from django.contrib.auth.models import User

from approvals.models import Approval, Queue
from approvals.services import decide
from durableagents import Context, End
from durableagents.contrib.accounts import passkeys, webauthn
from durableagents.contrib.step_up.models import Assertion, terms_of_yes
from runs.journal.asked.queues import QUEUES
from runs.models import Run
from tests.contrib.accounts.authenticator import Device
from tests.integration.approvals.setup import somebody
from tests.integration.runs.stage import Stage
from tests.world import Item, Notes, Toolbox, agent_of


def signed(stage: Stage, tools: Toolbox) -> Run:
    assert tools.pay.gate is not None
    Queue.objects.filter(name="legal").update(proof={"within": 300})
    row = Queue.objects.get(name="legal")
    row.seal()
    row.save()
    QUEUES.forget()
    lea, where = somebody("lea", "approver_legal"), webauthn.site()
    user, device = User.objects.get(pk=lea.person), Device(where.origin, where.rp_id)
    challenge, options = passkeys.to_make(user)
    passkeys.set_up(user, challenge.token, device.make(options), "phone", by=lea)
    asks = replace(tools.pay, gate=replace(tools.pay.gate, queue="legal"))

    async def node(state: Notes, ctx: Context) -> End:
        await ctx.call(asks, Item(name="one", amount=5000))
        return End((await ctx.call(asks, Item(name="two", amount=6000))).ref)

    run = stage.start(agent_of(node, tools=[asks]))
    for _ in range(2):
        assert stage.drive() == "parked"
        case = Approval.objects.get(run=run, state="open")
        terms = terms_of_yes(case.pk, case.revision, case.plan_hash, "approve", lea.person)
        challenge, options = passkeys.to_use(terms, user)
        check = passkeys.check(user, challenge.token, device.sign(options), terms)
        decide(case.pk, verdict="approve", plan_hash=case.plan_hash, justification="read", by=lea, evidence=check)
    assert stage.drive() == "completed"
    assert Assertion.objects.filter(run_id=run.id).count() == 2
    return run


make_run = signed
