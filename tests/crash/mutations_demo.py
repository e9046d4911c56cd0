"""Seeded bugs in what the demo says of its queue, in its refunds, and in what people are led to. See `mutations.py`."""

from __future__ import annotations

from tests.crash.mutant import Mutant

RULES, CAST, REFUND, SHOP, AROUND, PROBLEMS = (
    "durableagents/demo/oversight.py", "durableagents/demo/cast.py", "durableagents/demo/customer_refund/agent.py",
    "durableagents/demo/sandbox/systems/shop.py", "ledger/templatetags/console.py", "ledger/web/problems.py",
)  # fmt: skip
SAID, PEOPLE, REFUNDS, SHOPS, SET_UP, PROBLEM = (
    "tests/demo/test_oversight.py", "tests/infra/test_cast.py", "tests/demo/test_customer_refund.py",
    "tests/sandbox/test_shop.py", "tests/console/test_setup.py", "tests/api/test_problems.py",
)  # fmt: skip

DEMOS = [
    Mutant(
        "a start says anew what people took away",
        RULES,
        '    if "queue_reasons" not in actions:\n',
        "    if True:\n",
        f"{SAID} -k taken_away",
    ),
    Mutant(
        "a start ends what another one has begun",
        RULES,
        "    for person, most in ((",
        '    for person, most in () if "queue_limit" in actions else ((',
        f"{SAID} -k killed_in_the_middle",
    ),
    Mutant(
        "a start sets up a queue that is the demo's no more",
        RULES,
        "name=QUEUE, role=QUEUES[QUEUE], state=Queue.State.OPEN",
        "name=QUEUE",
        f"{SAID} -k left_alone",
    ),
    Mutant(
        "a retired policy is in force again at the next start",
        RULES,
        "Policy.objects.filter(name=POLICY).exists()",
        "Policy.objects.filter(name=POLICY, ended_at__isnull=True).exists()",
        f"{SAID} -k taken_away",
    ),
    Mutant(
        "what can't be said keeps all else from being said",
        RULES,
        '            print(f"up:',
        '            return print(f"up:',
        f"{SAID} -k can_not_be_said",
    ),
    Mutant(
        "of two who share a role the second one takes the first one's key",
        CAST,
        "for name, person in reversed(PEOPLE.items())",
        "for name, person in PEOPLE.items()",
        f"{PEOPLE} -k share_a_role",
    ),
    Mutant(
        "nobody answered is told as a no",
        REFUND,
        '        if no.verdict == "expired":\n            return End(Output(outcome="not_decided", reason=no.reason))\n',
        "",
        f"{REFUNDS} -k told_apart",
    ),
    Mutant(
        "a large refund is decided in two minutes",
        REFUND,
        "state.request.is_on_the_phone and proposal.amount_usd <= AT_ONCE_UP_TO",
        "state.request.is_on_the_phone",
        f"{REFUNDS} -k on_the_phone",
    ),
    Mutant(
        "the result doesn't say that a person changed it",
        REFUND,
        "    changed = ctx.amendment(paid)\n",
        "    changed = None\n",
        f"{REFUNDS} -k says_who",
    ),
    Mutant(
        "each refund is held against all that was paid",
        SHOP,
        "    left = paid - sum((Decimal(amount) for (amount,) in rows), Decimal())\n",
        "    left = paid\n",
        f"{SHOPS} -k add_up",
    ),
    Mutant(
        "whoever may open the administration is led to rules",
        AROUND,
        "request.user.is_staff and request.user.has_perm(permission)",
        "request.user.is_staff",
        f"{SET_UP} -k nobody_else_is_shown",
    ),
    Mutant(
        "a form that was lost is asked for as a page",
        PROBLEMS,
        'request.get_full_path() if request.method in ("GET", "HEAD") else ""',
        "request.get_full_path()",
        f"{PROBLEM} -k who_comes_back",
    ),
]
