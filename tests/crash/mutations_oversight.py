"""Seeded bugs in what a run's state allows, in `why`, in acts on many runs, and where two administrators meet. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

RULES, ACTS, ANSWER = "runs/services/allowed/rules.py", "runs/queries/why/acts.py", "runs/queries/why/answer.py"
WORKING, ASKING, FORECAST = (
    "runs/services/bulk/working.py", "runs/services/bulk/acts.py", "runs/services/bulk/forecast.py",
)  # fmt: skip
TOLD = "tests/runs/test_bulk_foretold.py"
WHY, BULK, MEANWHILE = "tests/runs/test_why.py", "tests/runs/test_bulk.py", "tests/console/test_meanwhile.py"
RIGHTS, DEADLINES = "durableagents/identity/rights.py", "approvals/deadlines/acts.py"

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
    Mutant("a forged batch is believed", WORKING, "if is_as_asked(batch) else []\n", "\n", f"{BULK} -k key_wrote"),
    Mutant("runs that were put in later are acted on too", WORKING, "    if items and digest_of(items) == batch.digest:\n", "    if items:\n", f"{BULK} -k key_wrote"),
    Mutant("a record of many doesn't say so", "ledger/append.py", "    return {\"batch\": by.batch} if by.batch else {}\n", "    return {}\n", f"{BULK} -k 128"),
    Mutant("a draft begins by itself", ASKING, "started_at=now if body.start else None", "started_at=now", f"{BULK} -k draft"),
    Mutant("a forecast says that all may be done", FORECAST, "        if hint is not None:\n            raise NotInThis", "        if hint is not None and not hint:\n            raise NotInThis", f"{BULK} -k is_named_and"),
    Mutant("a raise that raises nothing is foretold as done", FORECAST, "        if action == \"budget\":\n", "        if False:\n", f"{TOLD} -k own_words"),
    Mutant("a raise is told that it may use as much before it is told that it is over", "runs/services/budgets/raising.py", "    if (hint := why_not(\"budget\", stand)) is not None:\n", "    if (hint := why_not(\"budget\", stand)) is None and hint:\n", f"{TOLD} -k 'comes and completed'"),
    Mutant("whatever waits for its budget is foretold as paused by somebody", FORECAST, "            is_held=run.pk in self.holders,\n", "            is_held=Wait.Kind.BUDGET in kinds,\n", f"{TOLD} -k how_it_goes_on"),
    Mutant("a run's page takes a pause that is only asked for as nobody's", "runs/queries/why/seen.py", "self.pauser is not None,\n", "self.holder is not None,\n", f"{TOLD} -k 's_page and at_work'"),
    Mutant("a run without doubt is refused in other words than foretold", WORKING, "not_alike(doubts) or ANOTHER_DOUBT", "ANOTHER_DOUBT", f"{TOLD} -k 'comes and asleep'"),
    Mutant("what is at work beside a run is not foretold", FORECAST, "        elif run.pk in self.crowded and (", "        elif False and (", f"{TOLD} -k 'comes and begun'"),
    Mutant("a retry whose key lives says the state that it would have had", "runs/services/lifecycle.py", "        raise taken from error\n", "        raise act.refuse(retrying.KEY_LIVES.format(act.run.business_key)) from error\n", f"{TOLD} -k 'comes and key_lives'"),
    Mutant("a run whose time has come meanwhile is foretold as given back", FORECAST, "        elif action == \"requeue\" and is_in_pool", "        elif False and is_in_pool", f"{TOLD} -k 'comes and ready_meanwhile'"),
    Mutant("verification knows nothing of batches", "runs/verification/__init__.py", "SeenBy, Batches,\n", "SeenBy,\n", f"{BULK} -k verification"),
    Mutant("anybody starts it in somebody else's name", ASKING, "    if not is_own(batch, by):\n", "    if False:\n", "tests/runs/test_bulk_steered.py -k somebody_else_s_name"),
    Mutant("who only reads stops it", ASKING, "    return is_own(batch, by) or OPERATOR in held\n", "    return is_own(batch, by) or sees_all(held)\n", "tests/runs/test_bulk_steered.py -k somebody_else_s_name"),
    Mutant("whoever comes after a stop is before it", WORKING, "SELECT pg_advisory_xact_lock_shared({STOPPING})\", [str(batch_id)]", "SELECT %s::text\", [str(batch_id)]", "tests/runs/test_bulk_steered.py -k a_stop_is_next"),
    Mutant("what is asked for of a few is behind many", WORKING, "            turns.append((batch, passed))\n", "            turns.appendleft((batch, passed))\n", "tests/runs/test_bulk_steered.py -k not_behind_many"),
    Mutant("a verdict for many is on whatever call is in doubt", WORKING, "    return batch.said | receipt | {\"wait_id\": item.wait_id}\n", "    return batch.said | receipt\n", "tests/runs/test_bulk_more.py -k was_looked_at"),
    Mutant("a run without a doubt is settled by its next one", WORKING, "    if item.wait_id is None:\n", "    if False:\n", "tests/runs/test_bulk_more.py -k new_doubt"),
    Mutant("another receipt than was given settles", ASKING, "        return not digest or receipt_digest(batch.receipt) == digest\n", "        return True\n", "tests/runs/test_bulk_more.py -k of_use"),
    Mutant("a number of a receipt is what the database makes of it", "runs/models/control/bulk.py", "return as_hashed(super().from_db_value(value, expression, connection))", "return super().from_db_value(value, expression, connection)", "tests/runs/test_bulk_more.py -k that_was_given"),
    Mutant("one act on many that can't be judged stops all", ASKING, "    except ValueError:\n        return False  # what has no digest was not accepted\n", "    finally:\n        pass\n", "tests/runs/test_bulk_more.py -k can_not_be_judged"),
    Mutant("one act on many that breaks stops all", WORKING, "        if is_transient(error) and not is_refusal(error):\n            raise\n        log.warning(\"batch %s", "        if error:\n            raise\n        log.warning(\"batch %s", "tests/runs/test_bulk_more.py -k goes_wrong_with_one"),
    Mutant("a receipt for many stays for ever", WORKING, "    batch.ended_at, batch.receipt = database_now(), None\n", "    batch.ended_at = database_now()\n", "tests/runs/test_bulk_more.py -k of_use"),
    Mutant("a receipt for many is shown to whoever sees the act", "runs/api/bulk/shapes.py", "receipt=one.batch.receipt if viewer().reads_all else None", "receipt=one.batch.receipt", "tests/runs/test_bulk_more.py -k of_use"),
    Mutant("a verdict that is sent twice settles the next call", "runs/services/reconciling.py", "    if len(meant) > 1 or (wait_id is None and others.exists()):\n", "    if len(meant) > 1:\n", "tests/runs/test_settling.py -k no_other_call"),
    Mutant("who may not start it is offered it", "runs/console/bulk/views.py", "batch.state == \"draft\" and acts.is_own(batch, by) and", "batch.state == \"draft\" and", "tests/console/test_bulk.py -k offered_neither"),
    Mutant("two signs before a number break the form", "runs/console/bulk/views.py", "if re.fullmatch(r\"-?[0-9]{1,15}\", text) else text", "if text.lstrip(\"-\").isdigit() else text", "tests/console/test_bulk.py -k is_none_is_said"),
    Mutant("who comes second to a queue's form overwrites the first", "approvals/queues/acts.py", "    if is_moved(seen, part_of(queue, part)):", "    if False:", f"{MEANWHILE} -k comes_second"),
    Mutant("whatever is set of a queue stands in every form's way", "approvals/queues/acts.py", "for name in PARTS[part][0]]", "for name in CHANGES]", f"{MEANWHILE} -k nobodys_hindrance"),
    Mutant("deadlines are set over what nobody saw", DEADLINES, "    if is_moved(seen, shown_of(last)):\n        raise Moved(f\"What", "    if False:\n        raise Moved(f\"What", f"{MEANWHILE} -k comes_second"),
    Mutant("adding a calendar sets another one anew", DEADLINES, "    elif is_new:\n", "    elif False:\n", f"{MEANWHILE} -k added_over_none"),
    Mutant("a calendar is set over what nobody saw", DEADLINES, "    if is_moved(seen, shown_of(last)):\n        raise Moved(f\"The", "    if False:\n        raise Moved(f\"The", f"{MEANWHILE} -k added_over_none"),
    Mutant("a form that was refused forgets what it was made from", "ledger/templatetags/console.py", "return now if was is None or (", "return now if True or (", f"{MEANWHILE} -k another_reason"),
    Mutant("a role that was given meanwhile is taken back unseen", RIGHTS, "        if is_moved(seen, [ordered", "        if is_moved(None, [ordered", f"{MEANWHILE} -k unseen"),
    Mutant("the last administrator is none any more", RIGHTS, "        if not User.objects.filter(**ruling).exists():\n", "        if False:\n", f"{MEANWHILE} -k last_administrator"),
    Mutant("the last administrator closes their account", "durableagents/account_pages/admin_users.py", "        with one_is_left(row):\n", "        if row:\n", f"{MEANWHILE} -k administration_end"),
    Mutant("the last administrators are deleted", "durableagents/account_pages/admin_users.py", "transaction.atomic(), one_is_left(*queryset):", "transaction.atomic():", f"{MEANWHILE} -k deleted_there"),
    Mutant("sums are set in a currency that nobody saw", "approvals/queues/acts.py", "\"proof\": ((\"proof\", \"currency\"),", "\"proof\": ((\"proof\",),", f"{MEANWHILE} -k currency"),
    Mutant("a channel is set over what nobody saw", "approvals/notices/channels.py", "        if is_moved(seen, _shown_of(row)):", "        if False:", f"{MEANWHILE} -k channel"),
    Mutant("an empty code is a try at the sign-in", "durableagents/signin/factors.py", "        raise NoCodeOfEither\n    throttle.count(tries, str(user.pk))\n", "        pass\n    throttle.count(tries, str(user.pk))\n", "tests/signin/test_second_factor.py -k no_code_counts"),
    Mutant("a reason's line is counted from none", "approvals/queues/views.py", "enumerate(text.split(\"\\n\"), 1)", "enumerate(text.split(\"\\n\"), 0)", "tests/console/test_reasons.py -k by_its_line"),
    Mutant("an older invitation in other capitals stays open", "durableagents/identity/invitations.py", "username__iexact=name, revoked_at__isnull=True", "username=name, revoked_at__isnull=True", "tests/console/test_invitations.py -k capitals"),
    Mutant("the invited are told to choose a name", "durableagents/identity/invitations.py", "links.free_name(row.username, links.ASK)", "links.free_name(row.username)", "tests/console/test_invitations.py -k taken_meanwhile"),
    Mutant("a comma makes a sum a hundredfold", "approvals/queues/views.py", "if _GROUPED.fullmatch(typed) else typed)", ")", "tests/console/test_queues.py -k hundredfold"),
    Mutant("half a thousand with a comma is five hundred", "approvals/queues/views.py", "[1-9][0-9]{0,2}(,", "[0-9]{1,3}(,", "tests/console/test_queues.py -k hundredfold"),
    Mutant("a limit is set over what nobody saw", "approvals/queues/acts.py", "    if was != last:\n", "    if False:\n", f"{MEANWHILE} -k neither_set_over"),
    Mutant("one person's limit stands in the way of another's", "approvals/queues/acts.py", "    was = of_them.filter(pk__in", "    was = queue.limits.filter(pk__in", f"{MEANWHILE} -k neither_set_over"),
    Mutant("a limit is set in a currency that nobody saw", "approvals/queues/acts.py", "    if currency != queue.currency:\n        raise Moved(f\"The currency", "    if False:\n        raise Moved(f\"The currency", f"{MEANWHILE} -k limit_is_in_the_currency"),
]  # fmt: skip
