"""Erase a run's content: destroy its key, and blank copies of content that the key doesn't cover."""

# Everything happens in one transaction: the event in the run's journal, the entry in the register and the destroyed key
# (`encryption_erase` in sql/erasure.sql, which checks everything again), new codes for blanked rows, and the act. The
# database functions destroy the key; this module decides, explains and records.

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from django.apps import apps
from django.db import connection, transaction
from django.db.models import Q

from durableagents.contrib.encryption import run_keys
from durableagents.contrib.encryption.models import Erasure, RunKey
from ledger import events as e
from ledger.actors import Actor
from ledger.append import acted, justified, locked_head
from ledger.change_control import SUPERUSER, account_of, declare_family, holds, two_person
from ledger.erasure import Erasure as Said
from ledger.errors import DurableAgentsError, Forbidden, InvalidInput, NotFound
from ledger.models import Coded
from ledger.verification.archives import archived
from ledger.verification.runs import verify
from ledger.web.seeing.viewers import explained, must_see
from runs import features
from runs.models import Run
from runs.services.command import journal

ACTION, FAMILY = "erase", "erasure"
MAX_FAMILY = 500
MAX_TOGETHER = 50
SEES_TOO_LITTLE = "Only people who may see all runs may use this list, since it must be complete. Ask for another role."
# Tables in which `encryption_erase` blanks texts by people and whose rows carry codes.
_CODED = (
    "ledger_overriderecord",
    "ledger_actrecord",
    "approvals_decision",
    "approvals_inquiry",
    "approvals_delegation",
    "approvals_standinggrant",
)

declare_family(FAMILY, "erasing the content of runs")


class NotErasable(DurableAgentsError):
    """The run's content can't be erased now, or must be kept. Nothing was changed."""

    status, code, title = 409, "not-erasable", "The content can't be erased now"


@dataclass(frozen=True, slots=True)
class ErasureResult:
    """The result of an erasure.

    `others` are the runs erased together with this one. `remains` says where copies of the content are left. `problems`
    is the number of problems that verification found before the erasure.
    """

    entry: Erasure
    others: tuple[UUID, ...]
    remains: tuple[str, ...]
    is_new: bool = True
    problems: int = 0

    @property
    def said(self) -> Said:
        return _erasure_values(self.entry)


def _erasure_values(entry: Erasure) -> Said:
    return Said(entry.run_id, entry.at, entry.by, entry.reason)


def entries(run_ids: Collection[UUID]) -> dict[UUID, Said]:
    """Return the register's entries of these runs, also for runs whose journal is in an archive."""
    return {row.run_id: _erasure_values(row) for row in Erasure.objects.filter(run_id__in=run_ids)}


def find(run_id: UUID) -> Erasure | None:
    """Return the register's entry of a run; None if the run isn't erased."""
    return Erasure.objects.filter(run_id=run_id).first()


def erase(run_id: UUID, *, with_children: bool = False, by: Actor, justification: str) -> ErasureResult:
    """Erase a run's content, and with `with_children` also the content of all runs that hold copies of it.

    Only administrators and shell users on the server may do so, and a second person must approve it where that is
    configured. An archived run is restored in the same transaction. For a run that is already erased, the result is the
    same and nothing changes.

    Raises Forbidden, NotFound (or a more precise error about what became of the run), JustificationRequired,
    NotErasable, Proposed.
    """
    _must_be_admin(by)
    why = justified(ACTION, justification)
    if (entry := find(run_id)) is not None:
        return ErasureResult(entry, (), remains(run_id), is_new=False)
    if not Run.objects.filter(pk=run_id).exists() and not archived([run_id]):
        raise explained(NotFound("run", run_id), run_id)
    return _erase([run_id], with_children=with_children, justification=why, by=by)[0]


def erase_all(
    run_ids: Collection[UUID], *, with_children: bool = False, by: Actor, justification: str
) -> list[ErasureResult]:
    """Erase the content of all these runs or, after an error, of none; return the results of the new erasures.

    The rules of `erase` apply. With the two-person rule, all runs are one proposal. Runs that are already erased are
    skipped. Raises the same errors as `erase`, and InvalidInput for no runs or too many.
    """
    _must_be_admin(by)
    why = justified(ACTION, justification)
    wanted = sorted(set(run_ids))
    if not 1 <= len(wanted) <= MAX_TOGETHER:
        fix = "choose at least one" if not wanted else f"erase at most {MAX_TOGETHER} at a time"
        raise InvalidInput(
            f"{len(wanted)} runs are named: {fix}.",
            errors=[{"field": "runs", "problem": f"names {len(wanted)}", "fix": fix}],
        )
    for run_id in wanted:
        try:
            must_see(run_id)
        except NotFound:
            raise Forbidden(SEES_TOO_LITTLE) from None
        if not Run.objects.filter(pk=run_id).exists() and not archived([run_id]):
            raise NotFound("run", run_id)
    left = [run_id for run_id in wanted if find(run_id) is None]
    return _erase(left, with_children=with_children, justification=why, by=by) if left else []


@two_person(FAMILY, needs=SUPERUSER)
@transaction.atomic
def _erase(run_ids: list[UUID], *, with_children: bool, justification: str, by: Actor) -> list[ErasureResult]:
    """Erase runs that aren't erased yet, after the rights were checked. Each run has an act of its own."""
    for each in run_ids:
        if not Run.objects.filter(pk=each).exists() and (elsewhere := archived([each]).get(each)) is not None:
            elsewhere.restore(by, justification)
    families = _families(run_ids, with_children=with_children)
    problems = {}
    everything = sorted({each for family in families.values() for each in family})
    for each in everything:  # in a fixed order, so that concurrent erasures don't deadlock
        _must_be_erasable(each)
        problems[each] = len(verify(each).problems)
    for each in everything:
        _destroy(each, by=by, reason=justification)
    for let_copies_go in features.parts_of_all(lambda each: each.on_erased):
        let_copies_go(everything)
    done = []
    for run_id, family in families.items():
        found = sum(problems[each] for each in family)
        acted(
            ACTION,
            by=by,
            subject=f"run {run_id}",
            justification=justification,
            after={"runs": [str(each) for each in family], "problems_before": found},
        )
        others = tuple(each for each in family if each != run_id)
        done.append(ErasureResult(Erasure.objects.get(run_id=run_id), others, remains(run_id), problems=found))
    return done


def _must_be_admin(by: Actor) -> None:
    if by.auth != "shell" and not holds(account_of(by), SUPERUSER):
        raise Forbidden("Only an administrator may erase the content of a run.")


# --- which runs -------------------------------------------------------------------------------------------------------


def copies(run_id: UUID) -> list[Run]:
    """Return the runs that still hold a copy of this run's content in their input or state.

    These are children, continuations, forks and runs started again from it.
    """
    made = Run.objects.filter(Q(parent=run_id) | Q(came_from=run_id) | Q(forked_from=run_id), erased_at__isnull=True)
    return list(made.order_by("created_at", "id")[: MAX_FAMILY + 1])


def _families(run_ids: Collection[UUID], *, with_children: bool) -> dict[UUID, list[UUID]]:
    """Return for each run the runs to erase with it, itself first.

    Raises NotErasable if others hold copies and weren't included.
    """
    return {run_id: _family(run_id, among=None if with_children else run_ids) for run_id in run_ids}


def _family(run_id: UUID, *, among: Collection[UUID] | None) -> list[UUID]:
    found, left = [run_id], [run_id]
    while left:
        for run in copies(left.pop()):
            if among is not None and run.pk not in among:
                held = [each for each in copies(run_id) if each.pk not in among] or [run]
                named = ", ".join(str(each.pk) for each in held[:5])
                more = f" and {len(held) - 5} more" if len(held) > 5 else ""
                raise NotErasable(
                    f"Other runs hold copies of its content: {named}{more}. Erase them with it (--with-children, or "
                    "with_children in the API), or erase each of them first."
                )
            if run.pk not in found:
                found.append(run.pk)
                left.append(run.pk)
        if len(found) > MAX_FAMILY:
            raise NotErasable(f"More than {MAX_FAMILY} runs hold copies of its content: erase parts of them first.")
    return found


def remains(run_id: UUID) -> tuple[str, ...]:
    """Return texts that say where copies of the content are left."""
    run = Run.objects.filter(pk=run_id).first() or Run()  # only the metadata of an archived run is in the database
    above = {
        "its input and result, in its parent run": run.parent,
        "its first state, in the run that it continues": run.came_from,
        "the repeated steps, in the run that it was forked from": run.forked_from,
    }
    ids = [each for each in above.values() if each is not None]
    alive = set(Run.objects.filter(pk__in=ids, erased_at__isnull=True).values_list("pk", flat=True))
    found = [f"{what}: {which}" for what, which in above.items() if which in alive]
    return (*found, "metadata: tags, business key, search attributes, times, amounts and names of actors")


# --- one run ----------------------------------------------------------------------------------------------------------


def _must_be_erasable(run_id: UUID) -> None:
    """Lock the run's head and check that the run may be erased. Raises NotErasable, RecordDamaged."""
    locked_head(run_id)
    if why := features.removal_refusal(run_id):
        raise NotErasable(f"The content of run {run_id} must be kept: {why}.", run_id=str(run_id))
    with connection.cursor() as cursor:
        cursor.execute("SELECT encryption_why_not(%s)", [run_id])
        (why_not,) = cursor.fetchone()
    if why_not is not None:
        raise NotErasable(f"Run {run_id} can't be erased: {why_not}.", run_id=str(run_id))
    if find(run_id) is not None:
        raise NotErasable(f"Run {run_id} was already erased.", run_id=str(run_id))
    if not RunKey.objects.filter(run_id=run_id).exists():
        raise NotErasable(
            f"Run {run_id} can't be erased: it has no key. It was started while encryption was off, or its key was "
            f"lost without an erasure. `manage.py ledger verify {run_id}` tells which of the two.",
            run_id=str(run_id),
        )


def _destroy(run_id: UUID, *, by: Actor, reason: str) -> None:
    """Record the erasure in the journal and destroy the key and all copies, in the caller's transaction."""
    journal(run_id, e.ContentErased(by=by.ref, role=by.role, reason=reason), by=by)
    # The key is dropped at once in this thread, and in this process's other threads once the erasure is committed.
    run_keys.forget(run_id)
    transaction.on_commit(partial(run_keys.forget, run_id))
    with connection.cursor() as cursor:
        cursor.execute("SELECT encryption_erase(%s)", [run_id])
        for model in apps.get_models():
            if (table := model._meta.db_table) in _CODED and issubclass(model, Coded):
                of = "approval__run_id" if table == "approvals_decision" else "run_id"
                if codes := _codes(model._default_manager.filter(**{of: run_id})):
                    cursor.execute("SELECT encryption_recode(%s, %s, %s::jsonb)", [run_id, table, codes])


def _codes(rows: Iterable[Coded]) -> str:
    """Return new codes for the rows' current content, as a JSON object by row id; empty if there are no rows."""
    found: dict[str, str] = {}
    for row in rows:
        row.seal()
        found[str(row.pk)] = bytes(row.code or b"").hex()
    return json.dumps(found) if found else ""
