"""Seeded bugs in what a run's state allows, in `why`, and in acts on many runs. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

RULES, ACTS, ANSWER = "runs/services/allowed/rules.py", "runs/queries/why/acts.py", "runs/queries/why/answer.py"
WORKING, ASKING, FORECAST = (
    "runs/services/bulk/working.py", "runs/services/bulk/acts.py", "runs/services/bulk/forecast.py",
)  # fmt: skip
WHY, BULK = "tests/runs/test_why.py", "tests/runs/test_bulk.py"

OVERSIGHT = [
    Mutant("a run that is paused can be paused once more", RULES, "    if s.state == State.PAUSED and (not s.asks_budget or s.is_held):\n", "    if s.state == State.PAUSED and s.is_held:\n", f"{WHY} -k paused_pending"),
    Mutant("a run that waits for its budget is offered to be resumed", ACTS, "    hint = why_not(act, seen.stand)\n", "    hint = None if act == \"resume\" else why_not(act, seen.stand)\n", f"{WHY} -k budget"),
    Mutant("everybody is offered every act", ACTS, "    if role is None:\n        return offer.refused(stands.refusal(act, reader.held))\n", "", f"{WHY} -k asleep"),
    Mutant("a breaker that is open is told as a rate", ANSWER, "\"breaker\" if detail_text(wait, \"why\") == \"breaker\" else \"limit\"", "\"limit\"", f"{WHY} -k timer"),
    Mutant("a halt is told behind the run's own rows", ANSWER, "    if (found := judged(seen)) is not None:\n        return found\n", "", f"{WHY} -k halts"),
    Mutant("a run that no worker has put aside yet waits for one", ANSWER, " or (halt is not None and is_ready)", "", "tests/api/test_halts.py -k under_a_halt"),
    Mutant("a wait is evidence without its event", ANSWER, "seqs.get(_place(wait))", "None", f"{WHY} -k at_gate"),
    Mutant("a run's act and its outcome are two commits", WORKING, "            item.save(update_fields=[\"outcome\", \"code\", \"why\", \"at\"])\n    except", "            transaction.on_commit(lambda: item.save(update_fields=[\"outcome\", \"code\", \"why\", \"at\"]))\n    except", f"{BULK} -k notes_the_outcome"),
    Mutant("what somebody is at is waited for and done again", WORKING, "select_for_update(skip_locked=True).filter(outcome=\"\").exclude(pk__in=passed)", "filter(outcome=\"\").exclude(pk__in=passed)", f"{BULK} -k passed_over"),
    Mutant("a stop is not looked at before each run", WORKING, "            if not _goes_on(batch.pk):\n                return False\n", "", f"{BULK} -k stop_returns"),
    Mutant("a batch is done under the roles of before", WORKING, "    return roles(person), viewer_of(person)\n", "    return frozenset({OPERATOR}), EVERYTHING\n", f"{BULK} -k lost_on_the_way"),
    Mutant("a forged batch is believed", WORKING, "if batch.is_genuine else []\n", "\n", f"{BULK} -k key_wrote"),
    Mutant("runs that were put in later are acted on too", WORKING, "    if ids and digest_of(ids) == batch.digest:\n", "    if ids:\n", f"{BULK} -k key_wrote"),
    Mutant("a record of many doesn't say so", "ledger/append.py", "    return {\"batch\": by.batch} if by.batch else {}\n", "    return {}\n", f"{BULK} -k 128"),
    Mutant("a draft begins by itself", ASKING, "started_at=now if body.start else None", "started_at=now", f"{BULK} -k draft"),
    Mutant("a forecast says that all may be done", FORECAST, "    if hint is None:\n        return None\n", "    if hint is None or hint:\n        return None\n", f"{BULK} -k is_named_and"),
    Mutant("verification knows nothing of batches", "runs/verification/__init__.py", "SeenBy, Batches,\n", "SeenBy,\n", f"{BULK} -k verification"),
]  # fmt: skip
