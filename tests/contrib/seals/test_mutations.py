"""Random changes by a superuser of the database: with a witness's copy each is found, and its runs are named."""

from __future__ import annotations

import random
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import transaction

from approvals.models import Approval, Decision
from durableagents import Context, End
from durableagents.contrib.seals.models import Seal
from durableagents.contrib.seals.witnesses import deliver
from durableagents.seal_witness import SealWitness
from ledger.models import Head
from tests.contrib.seals.conftest import seal
from tests.contrib.seals.mutations import MUTATIONS, Attack
from tests.integration.approvals.setup import buying, say, somebody
from tests.integration.runs.conftest import _django_db_marker
from tests.integration.runs.stage import Stage
from tests.tiers import LONG, many
from tests.world import Item, Notes, Toolbox, agent_of

__all__ = ["_django_db_marker"]  # a stage has several connections, so it commits

pytestmark = pytest.mark.django_db
# Where a search begins; `pytest --long` begins elsewhere each time, and prints it.
SEED = 95
PARTS = many(50, 1)  # each in the time that a test may take
PER_PART = 200


@pytest.fixture
def installation(stage: Stage, tools: Toolbox, witness: SealWitness) -> Path:
    """Four runs: approved, rejected, waiting for a decision, and without a gate. Return the witness's copy."""

    async def order(state: Notes, ctx: Context) -> End:
        return End((await ctx.call(tools.order, Item(name="po", amount=7))).ref)

    fiona = somebody("fiona", "approver_finance")
    gated, plain = buying(tools), agent_of(order, name="plain", tools=[tools.order])
    for verdict in ("approve", "reject", ""):
        stage.start(gated)
        assert stage.drive() == "parked" and seal() == 1
        if verdict:
            say(Approval.objects.get(state="open"), fiona, verdict)
            stage.drive()
            assert seal() == 1
    stage.start(plain)
    stage.drive()
    assert seal() == 1 and deliver(witness) == Seal.objects.count() == 6
    assert Decision.objects.count() == 2 and Head.objects.count() == 4
    assert witness.path is not None
    return witness.path


def verified(copy: Path) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("seals", "verify", "--witness", str(copy), stdout=out)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


@pytest.mark.parametrize("part", range(PARTS))
def test_every_mutation_is_found_and_names_its_runs(
    installation: Path, part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    base = random.SystemRandom().randrange(2**32) if many(True, False) else SEED
    with capsys.disabled():
        print(f"\n{PER_PART} mutations, {LONG}={many(1, 0)}, seed {base}, part {part}")  # noqa: T201
    assert verified(installation) == (0, "6 seal(s), 6 sealed head(s), 0 problem(s)\n")
    kinds: Counter[str] = Counter()
    missed = []
    for n in range(PER_PART):
        seed = f"{base}/{part}/{n}"
        chance = random.Random(seed)
        mutate = MUTATIONS[n % len(MUTATIONS)]
        with transaction.atomic():
            attack = Attack(chance, has_keys=chance.random() < 0.5)
            named = mutate(attack)
            code, text = verified(installation)
            transaction.set_rollback(True)
        kinds[mutate.__name__] += 1
        lines = text.splitlines()
        unnamed = [each for each in named if not any(line.startswith(f"run {each}: ") for line in lines)]
        if code != 1 or unnamed or not named:
            missed.append((seed, mutate.__name__, attack.has_keys, code, text[:600]))
    assert missed == [], f"{len(missed)} of {PER_PART} were missed"
    assert len(kinds) == len(MUTATIONS)
    assert verified(installation)[0] == 0, "each was undone"
