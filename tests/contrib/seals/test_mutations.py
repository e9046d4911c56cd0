"""Random changes by a superuser of the database: with a witness's copy each is found, and its runs are named."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import transaction

from approvals.models import Approval, Decision
from durableagents import Context, End
from durableagents.contrib.seals.models import Seal, SealedHead
from durableagents.contrib.seals.verification import check_database, check_witness
from durableagents.contrib.seals.witnesses import deliver
from durableagents.seal_witness import SealWitness
from ledger.models import Head
from ledger.verification import runs
from tests.contrib.seals.conftest import seal
from tests.contrib.seals.mutations import MUTATIONS, Attack
from tests.integration.approvals.setup import buying, say, somebody
from tests.integration.runs.conftest import _django_db_marker
from tests.integration.runs.stage import Stage
from tests.tampering import tamper
from tests.tiers import many
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


def accused(copy: Path, touched: Iterable[UUID]) -> set[UUID]:
    """Return the runs that the command would name. Runs that are named by the seals aren't verified again, nor those
    that were not touched, because that takes most of the time."""
    found = {each.run_id for each in (*check_database(), *check_witness(copy)) if each.run_id is not None}
    for run_id in set(touched) - found:
        if runs.verify(run_id).problems:
            found.add(run_id)
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_every_mutation_is_found_and_names_its_runs(
    installation: Path, part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    base = random.SystemRandom().randrange(2**32) if many(True, False) else SEED
    with capsys.disabled():
        sys.stdout.write(f"\n{PER_PART} mutations, seed {base}/{part}\n")
    assert verified(installation) == (0, "6 seal(s), 6 sealed head(s), 0 problem(s)\n")
    kinds: Counter[str] = Counter()
    missed = []
    for n in range(PER_PART):
        chance = random.Random(f"{base}/{part}/{n}")
        mutate = MUTATIONS[n % len(MUTATIONS)]
        with transaction.atomic():
            attack = Attack(chance, has_keys=chance.random() < 0.5)
            touched = mutate(attack)
            found = accused(installation, touched)
            transaction.set_rollback(True)
        kinds[mutate.__name__] += 1
        if not touched or found != touched:
            missed.append((n, mutate.__name__, attack.has_keys, touched, found))
    assert missed == [], f"{len(missed)} of {PER_PART} were missed, or named another run, with seed {base}/{part}"
    assert len(kinds) == len(MUTATIONS)
    assert verified(installation)[0] == 0, "each was undone"


def test_the_command_names_run_and_event(installation: Path) -> None:
    """A tail that is cut off with all keys shows nowhere else: the journal alone verifies."""
    attack = Attack(random.Random(1), has_keys=True)
    run_id = attack.runs[0]
    last = attack.seqs(run_id)[-1]
    for table in ("ledger_event", "ledger_ledgerentry"):
        tamper(f"DELETE FROM {table} WHERE run_id = %s AND seq = %s", run_id, last)
    attack.repair(run_id)
    code, text = verified(installation)
    assert code == 1 and f"run {run_id}: event {last} was sealed in seal" in text


def test_without_a_witness_the_last_seals_can_be_cut_off(installation: Path) -> None:
    """The documented limit: this manipulation is not found."""
    run_id = Head.objects.order_by("-run_id").values_list("run_id", flat=True)[0]
    for table, column in runs.tables.items():
        tamper(f"DELETE FROM {table} WHERE {column} = %s", run_id)
    tamper("DELETE FROM runs_run WHERE id = %s", run_id)
    first = Seal.objects.filter(number__in=numbers_of(run_id)).order_by("number").values_list("number", flat=True)[0]
    tamper("DELETE FROM seals_seal WHERE number >= %s", first)
    tamper("DELETE FROM seals_sealedhead WHERE seal >= %s", first)
    assert [str(each) for each in check_database()] == []
    assert {each.run_id for each in check_witness(installation)} >= {run_id}


def numbers_of(run_id: UUID) -> list[int]:
    return list(SealedHead.objects.filter(run_id=run_id).values_list("seal", flat=True))
