"""Seeded bugs: each breaks one promise, by one small change to one file. A test, or the light schedules, has to notice every one.

Used by `python -m tests.crash.mutants`, which applies them to a copy of the checkout, never to the checkout itself.
"""

from __future__ import annotations

from tests.crash.mutant import LIGHT, Mutant
from tests.crash.mutations_cases import CASES
from tests.crash.mutations_certified import CERTIFIED
from tests.crash.mutations_claims import CLAIMING
from tests.crash.mutations_damaged import DAMAGED
from tests.crash.mutations_deadlines import DEADLINES
from tests.crash.mutations_demo import DEMOS
from tests.crash.mutations_documents import DOCUMENTS
from tests.crash.mutations_forks import FORKING
from tests.crash.mutations_four_eyes import LOOKING
from tests.crash.mutations_grants import GRANTING
from tests.crash.mutations_halts import HALTING
from tests.crash.mutations_handed import HANDED_OVER
from tests.crash.mutations_migration import MIGRATION
from tests.crash.mutations_oversight import OVERSIGHT
from tests.crash.mutations_passkeys import PASSKEYS
from tests.crash.mutations_policies import POLICIES
from tests.crash.mutations_proofs import PROVING
from tests.crash.mutations_releases import RELEASES
from tests.crash.mutations_settling import SETTLING
from tests.crash.mutations_shared import MORE
from tests.crash.mutations_sight import SIGHT_AND_QUEUES
from tests.crash.mutations_talk import TALKS
from tests.crash.mutations_testing import TESTING
from tests.crash.mutations_undo import UNDOING
from tests.crash.mutations_versions import VERSIONS
from tests.crash.mutations_votes import VOTING

LATE, NEWS, DRIVE, SWEEPER = (
    "runs/services/late_results.py",
    "tests/runs/test_late_news.py",
    "runs/engine/driver.py",
    "runs/workers/timers.py",
)
DOUBT, LOST = "runs/engine/steps/doubt.py", "runs/journal/lost_answers.py"
APPEND, STEPS, STORE, CALLS, SEND, CALLBACKS = (
    "ledger/sql/append.sql", "runs/sql/0016_steps.sql", "runs/journal/postgres.py", "runs/engine/steps/call.py", "runs/engine/steps/send.py",
    "runs/services/callbacks.py",
)  # fmt: skip
MAIL, MAILED = "durableagents/demo/mail_before_gate.py", "tests/demo/test_mail_before_gate.py"
REVIEW, READS, REVIEWED = (
    "durableagents/demo/literature/literature_review.py",
    "durableagents/demo/literature/paper_reader.py",
    "tests/demo/test_literature.py",
)
PLANNED = "runs/sql/0071_claims_under_halts.sql"
CLAIMS, TROUBLE, HOST = "runs/sql/0007_claims.sql", "runs/journal/database_errors.py", "runs/workers/run_loop.py"
COMMITTER = "runs/journal/committer.py"
INTEND = "runs/sql/0071_claims_under_halts.sql"
POOLS, POOLED, POOL_ACTS = "runs/sql/0026_pools.sql", "tests/runs/test_pools.py", "runs/services/pools/acts.py"
BUDGETS, METER, THINK, RAISING = (
    "runs/sql/0018_steps.sql", "runs/engine/budget/meter.py", "runs/engine/thinking/question.py", "runs/services/budgets/raising.py",
)  # fmt: skip
COMPACTION, WHOM = "runs/engine/thinking/compaction.py", "tests/engine/test_whom_it_asks.py"
ASKED, RAISED = "runs/services/budgets/asked.py", "tests/runs/test_raising.py"
ENDS, WISHES, READER, CHILD = (
    "runs/services/families/ends.py", "runs/services/families/wishes.py", "runs/journal/reader.py", "runs/engine/steps/children.py",
)  # fmt: skip
KEYS, TURNS, FIRING, DUE, CRON, SET = (
    "runs/services/starts/keys.py", "runs/services/starts/turns.py", "runs/services/schedules/firing.py",
    "runs/services/schedules/due.py", "runs/services/schedules/cron.py", "runs/services/schedules/acts.py",
)  # fmt: skip
BY_KEY, BY_CLOCK = "tests/runs/test_keys.py", "tests/runs/test_schedules.py"
FAMILY, ATTACKED = (
    "tests/runs/test_children.py",
    "tests/runs/test_children_attacked.py tests/runs/test_children_torn.py",
)
FOUND, SEARCHED = "tests/runs/test_attributes.py", "tests/api/test_attributes.py"
MESSAGES, SENDING = "runs/sql/0023_messages.sql", "runs/services/messages/sending.py"
TELLING = "tests/runs/test_telling.py"

MUTANTS = [
    # --- one writer
    Mutant("no fence: a stale lease may write", APPEND, "IF p_epoch IS NOT NULL AND (h.epoch <> p_epoch", "IF p_epoch IS NOT NULL AND false AND (h.epoch <> p_epoch", "tests/runs/test_recovery.py"),
    Mutant(
        "a claim keeps epoch and lease", "runs/sql/steps.sql", "    h.epoch := h.epoch + 1;\n    h.lease := gen_random_uuid();\n",
        "    h.lease := coalesce(h.lease, gen_random_uuid());\n", LIGHT,
    ),
    Mutant("a claim waits for nobody and takes what is taken", PLANNED, "OR r.is_solo <> p_solo OR r.ready_at IS NULL OR ", "OR r.is_solo <> p_solo OR ", "tests/limits/test_shares.py -k is_looked_at"),
    Mutant(
        "one damaged run ends every claim", PLANNED,
        "            CONTINUE WHEN left(SQLSTATE, 2) IN ('40', '55');  -- somebody has the row: it is looked at again\n", "            RAISE;\n",
        "tests/runs/test_damage.py -k 'back'",
    ),
    Mutant(
        "several sweepers walk the same rows", "runs/sql/0072_standing_still.sql", "    IF NOT pg_try_advisory_xact_lock(p_lock) THEN", "    IF false THEN",
        "tests/runs/test_recovery.py -k only_one_process",
    ),
    Mutant("the longer queue goes first", PLANNED, "FROM best ORDER BY priority DESC, turn, ready_at LIMIT", "FROM best ORDER BY priority DESC, ready_at LIMIT", "tests/runs/test_claims.py -k take_turns"),
    Mutant("a refusal is taken for an outage", TROUBLE, "            self._count += 1\n", "            self._count += 0\n", "tests/runs/test_refusals.py -k for_good"),
    Mutant("everybody makes room for a run that is driven alone", HOST, "news.chosen == self.worker.id and", "news.chosen is not None and", "tests/runs/test_solo.py -k every_worker"),
    Mutant("who is called and has no room tells nobody", HOST, "if self._is_called and self._is_busy:", "if self._is_called and not self._is_busy:", "tests/runs/test_calls.py -k no_room"),
    Mutant("a slot that falls free stays free", HOST, "if self._is_busy or not is_done or", "if not is_done or", "tests/runs/test_calls.py -k falls_free"),
    Mutant("sequence numbers have gaps", "ledger/sql/0016_journal_size.sql", "        h.seq := h.seq + 1;\n", "        h.seq := h.seq + 1 + (line.kind = 'RunParked')::int;\n", LIGHT),
    # --- intent before effect, result after it
    Mutant(
        "an intent is recorded after the call", CALLS, "            await _intend(call, await gates.passed(call) if call.may_be_gated else None)\n",
        "            grant = await gates.passed(call) if call.may_be_gated else None\n            call.key = idempotency_key(visit.run_id, call.slot, call.attempt)\n"
        "            await tool._function(call.args, call.tool_call())\n            await _intend(call, grant)\n", LIGHT,
    ),
    Mutant(
        "the result and its ledger entry are two commits", STORE, "        events, statement, values = self._record(batch)\n",
        "        if batch.entries:\n            await self.commit(replace(batch, entries=()))\n            batch = replace(batch, events=())\n"
        "        events, statement, values = self._record(batch)\n", LIGHT,
    ),
    Mutant("a result has no ledger entry", CALLS, "entries = call.booked(\"committed\", result, external_id=external_id)", "entries = []", LIGHT),
    Mutant("an intent has no ledger entry", CALLS, "[] if tool.is_pure else [call.intent().entry(\"pending\")]", "[]", LIGHT),
    # --- what may be repeated, and how
    Mutant(
        "an unsafe call in doubt is simply sent again", DOUBT, "    elif is_distrust or is_idle or not may_repeat(call.tool.replay_class, is_key_spent=call.is_key_spent):", "    elif is_distrust or call.is_key_spent:", LIGHT,
    ),
    Mutant(
        "an unsafe call without an answer is sent again", SEND,
        "        if tool.is_unsafe or await is_distrusted(call):\n            known = await lost_answer", "        if await is_distrusted(call):\n            known = await lost_answer", LIGHT,
    ),
    Mutant(
        "a repeat has a key of its own", DOUBT, "call.key, call.token = stored.get(\"key\"), stored.get(\"callback_token\")",
        "call.key, call.token = (stored.get(\"key\") or \"\") + \"-again\" or None, stored.get(\"callback_token\")", LIGHT,
    ),
    Mutant(
        "a repeat has a body of its own", DOUBT, "call.callback_base = stored.get(\"callback_base\", call.callback_base)",
        "call.callback_base = str(call.callback_base)", "tests/engine/test_moved.py",
    ),
    Mutant("a repeat is not announced", SEND, "        await _announce(call)\n", "", LIGHT),
    Mutant("a key is trusted for ever", "runs/engine/tools.py", "if key is None or self.key_ttl is None:", "if True:", "tests/engine/test_key_ttl.py"),
    Mutant("a lost answer is a person's though the hook knows", DOUBT, "    said = await _asked_now(call)\n", "    said = None\n", "tests/engine/test_classes.py"),
    Mutant("a no of the hook counts while the call is on its way", DOUBT, "if not (is_sender_done and await is_believed(said", "if not (await is_believed(said", "tests/engine/test_classes.py"),
    Mutant("the hook is not asked", DOUBT, "says of it. None: it may be sent again. Parks where only a person can tell.\"\"\"\n    answer = await _ask(call)\n", "says of it. None: it may be sent again. Parks where only a person can tell.\"\"\"\n    answer = None\n", "tests/engine/test_classes.py"),
    Mutant("a call may be sent again while its sender lives", "runs/services/settling/senders.py", "    if is_gone(sender) or (", "    if True or (", "tests/runs/test_sender.py"),
    # --- commits whose answer is lost
    Mutant(
        "a commit whose answer is lost counts as not done", LOST, "                return await self._written(), claimed\n", "                return None, claimed\n", "tests/runs/test_lost_answers.py -k there_once",
    ),
    Mutant(
        "a commit whose answer is lost counts as done", LOST, "                return await self._written(), claimed\n", "                return self.after + 1, claimed\n", LIGHT,
    ),
    Mutant("another worker's intent is taken for one's own", LOST, "                    if self.lets_go and (seq := await self._written()) is not None:", "                    if (seq := await Lost(self.pool, self.worker, self.run_id, self.events, self.after, 2, False)._written()) is not None:", "tests/runs/test_lost_answers.py -k leave_to_send"),
    # --- several runs in one commit
    Mutant(
        "a neighbour's refusal leaks", COMMITTER, "        except Undone:\n            answers = [_Alone.TURNED_AWAY] * len(batch.writes)  # alone, the one that was refused hears why\n",
        "        except Undone as undone:\n            for write in batch.writes:\n                write.answer.set_exception(undone.refusal)\n            return\n",
        "tests/runs/test_committer.py -k 'stops_one or refuses_to_one'",
    ),
    Mutant(
        "a batch is taken as a whole", COMMITTER, "[_Alone.TURNED_AWAY if row is None else reply_of(row) for row in rows]", "[_Alone.TURNED_AWAY if None in rows else reply_of(row) for row in rows]",
        "tests/runs/test_committer.py -k head_that_somebody_holds",
    ),
    Mutant(
        "an answer is given to the wrong run", COMMITTER, "in zip(batch.writes, answers, strict=True)", "in zip(batch.writes, answers[::-1], strict=True)",
        "tests/runs/test_committer.py -k own_answer",
    ),
    Mutant("an end that is not done withdraws questions", "approvals/store.py", " AND w.resolution = 'withdrawn'", "", "tests/runs/test_batches.py -k an_end_takes"),
    Mutant("a batch takes all that is ready", COMMITTER, "min(share, MOST_TOGETHER)", "MOST_TOGETHER", "tests/runs/test_batches.py -k no_batch_takes_all"),
    Mutant("a batch waits for a run that somebody holds", COMMITTER, " FOR UPDATE SKIP LOCKED", " FOR UPDATE", "tests/runs/test_committer.py -k head_that_somebody_holds"),
    Mutant(
        "cutting one run off cuts off its neighbours", COMMITTER, "        if not write.batch.is_wanted:\n            task.cancel()", "        task.cancel()",
        "tests/runs/test_committer.py -k cutting_one_off",
    ),
    # --- gates
    Mutant(
        "an approval may be used again", STEPS,
        " AND grant_expires_at > clock_timestamp()\n      AND (consumed_at IS NULL OR is_covered AND consumed_by = p_slot AND consumed_attempt < p_attempt);",
        " AND grant_expires_at > clock_timestamp();", "tests/runs/test_journal.py -k grant",
    ),
    Mutant("an approval is not bound to what was approved", STEPS, "      AND grant_hash = g_hash AND grant_expires_at", "      AND grant_expires_at", "tests/runs/test_journal.py -k grant"),
    Mutant(
        "an approval is used up without an intent", INTEND,
        "    IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold OR runs_is_answered(p_run, p_lines) THEN\n        RETURN runs_reply_of(h, false);\n    END IF;\n    PERFORM runs_check_halts",
        "    UPDATE runs_wait SET consumed_at = clock_timestamp() WHERE run_id = p_run AND slot = g_slot AND kind = 'approval' AND h.is_pause_requested;\n"
        "    IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold OR runs_is_answered(p_run, p_lines) THEN\n        RETURN runs_reply_of(h, false);\n    END IF;\n    PERFORM runs_check_halts",
        "tests/runs/test_journal.py -k wish",
    ),
    Mutant("an approval that lay too long is still good", STEPS, " AND grant_expires_at > clock_timestamp()\n", "\n", "tests/runs/test_journal.py -k 'grant or yes'"),
    Mutant("an approval covers a call that had its effect", STEPS, "p_attempt > 0 AND runs_is_undone(p_run, p_slot, p_attempt);", "p_attempt > 0;", "tests/runs/test_journal.py -k covers"),
    Mutant("a repeat needs no approval", INTEND, "ELSIF invoked.attempt > 0 AND EXISTS", "ELSIF false AND EXISTS", "tests/runs/test_journal.py -k goes_out_again"),
    Mutant("an approval that expired is asked for once only", "runs/engine/steps/gates.py", "if isinstance(error, ApprovalExpired) or call.record.grants:", "if False:", "tests/runs/test_again.py"),
    Mutant("a gate is passed over", "runs/engine/steps/gates.py", "    if rule is not None or record.grants:\n", "    if False:\n", "tests/engine/test_gates.py"),
    Mutant("the last decision stands", "approvals/services.py", "if approval.state != ApprovalState.OPEN or wait.resolved_at is not None:", "if False:", "tests/approvals/test_decide.py"),
    # --- pause, cancel, park
    Mutant("an intent ignores a cancel", INTEND, "IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold OR runs_is", "IF h.is_pause_requested OR h.is_on_hold OR runs_is", "tests/runs/test_journal.py -k wish"),
    Mutant("an intent ignores a pause", INTEND, "IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold OR runs_is", "IF h.is_cancel_requested OR h.is_on_hold OR runs_is", "tests/runs/test_journal.py -k wish"),
    Mutant("a run parks on what was resolved before", BUDGETS, "OR (p_how IN ('park', 'settle', 'budget') AND EXISTS", "OR (false AND EXISTS", "tests/runs/test_journal.py -k park"),
    Mutant("a cancelled run completes", BUDGETS, "OR (p_how = 'end' AND p_state <> 'cancelled' AND h.is_cancel_requested)", "OR false", "tests/runs/test_races.py -k overtaken"),
    Mutant("a drained run is forgotten", BUDGETS, "CASE WHEN p_how = 'release' THEN clock_timestamp() WHEN", "CASE WHEN", LIGHT),
    # --- the outside
    Mutant("a callback is taken twice", CALLBACKS, "if wait.resolution == \"received\" or wait.consumed_at is not None:", "if False:", "tests/runs/test_callbacks.py"),
    Mutant("a late callback overwrites a person's word", CALLBACKS, "if not _still_counts(run, wait):", "if False:", "tests/runs/test_callbacks.py"),
    Mutant("an answered call is repeated", STEPS, "IF line.kind IN ('ToolRedispatched', 'ToolOutcomeUnknown', 'ToolReconciled', 'ToolFailed', 'ToolReturned')\n", "IF false\n", "tests/runs/test_journal.py -k answered"),
    Mutant("the newest signal is given out first", "runs/sql/signals.sql", "taken_by IS NULL ORDER BY n LIMIT 1", "taken_by IS NULL ORDER BY n DESC LIMIT 1", "tests/runs/test_signals.py -k given_out"),
    Mutant("a deadline that moved is not looked at again", SWEEPER, "wait.resolved_at is not None or wait.deadline > now or", "wait.resolved_at is not None or", "tests/runs/test_recovery.py -k moved"),
    Mutant("a wait is settled twice", "runs/services/command.py", "    if wait.resolved_at is not None:\n        raise IllegalTransition(\n            \"settle a wait\"", "    if False:\n        raise IllegalTransition(\n            \"settle a wait\"", "tests/runs/test_interrupted_stops.py"),
    # --- what comes late
    Mutant("a late answer rewrites the past", CALLBACKS, " and not tape.went_on_from(wait.slot)", "", NEWS),
    Mutant("late news is passed over at a retry", DRIVE, "if late := untold(self.tape):", "if late := []:", NEWS),
    Mutant("a witness is heard while another worker repeats the call", LATE, "return late.accepted is None and not _is_repeated(run, head, attempt, late)", "return True", NEWS),
    Mutant("a verdict is written behind a run's end", LATE, "if run.state in ENDED or attempt.result", "if attempt.result", "tests/runs/test_late.py"),
    Mutant("what a run's end withdrew opens again whatever came", "runs/services/retrying.py", "if not is_known and (is_asked or is_open):", "if True:", NEWS),
    Mutant("a callback's time runs out before its call was taken", SWEEPER, "if not is_accepted or is_asked:", "if False:", NEWS),
    Mutant("the answer to what was asked anew is not heard", "runs/engine/tape.py", "    attempt.finding.found(event.verdict)\n", "", "tests/runs/test_belied.py -k asked_again"),
    Mutant("a witness's word is forgotten", "runs/engine/tape.py", "if event.outcome != \"refused\" and", "if False and", "tests/runs/test_late_news.py -k after_the_end"),
    Mutant("what a person has answered stops a retry all the same", "runs/engine/steps/late_news.py", "is_news and known.is_belied and", "is_news and", "tests/runs/test_belied.py -k later_visit"),
    Mutant("what a person answers before a worker comes is told all the same", "runs/engine/steps/late_news.py", " if news[\"slot\"] not in tape.slots or _is_open(tape, news)]", "]", "tests/runs/test_belied.py -k nobody_is_told"),
    Mutant("the database lets go out again what a witness belies", INTEND, "IF invoked.attempt > 0 AND runs_is_belied(", "IF false AND runs_is_belied(", "tests/runs/test_belied.py tests/runs/test_journal.py -k 'just_before or belies'"),
    Mutant("a person is asked again for ever", STEPS, " AND v.seq > e.seq\n            AND v.kind = 'ToolReconciled'", " AND v.seq > e.seq\n            AND v.kind = 'RunPaused'", "tests/runs/test_journal.py -k belies"),
    Mutant("a refusal breaks a run that was called back", STEPS, "'ToolReconciled', 'ToolFailed', 'ToolReturned')", "'ToolReconciled')", "tests/runs/test_callback_order.py -k stands"),
    Mutant("a spent key keeps a witness from being heard", LATE, "is_key_spent=is_spent", "is_key_spent=False", "tests/runs/test_late.py -k spent"),
    Mutant("a witness is heard while a worker has repeated the call", LATE, "    return announced.filter(epoch=head.epoch).exists()", "    return False", "tests/runs/test_late.py -k repeated"),
    Mutant("a witness is heard once", LATE, "any(_is_the_same(event, late, by) for event in on_record)", "any(getattr(event, \"by\", None) == by.ref for event in on_record)", "tests/runs/test_late.py -k taken_may_tell"),
    # --- recovery
    Mutant("a dead worker's runs are left alone", "runs/workers/failover.py", "    if run.owner != incarnation_id:\n        return False\n    now = database_now()\n    process", "    return False\n    now = database_now()\n    process", LIGHT),
    Mutant("a worker on record as ended keeps its runs", "runs/workers/failover.py", "    for process in ended:\n", "    for process in ended[:0]:\n", "tests/runs/test_recovery.py"),
    Mutant("a living worker is taken for dead", "runs/fleet/members.py", "if not is_here or not is_running(row[2], row[3])]", "]", "tests/runs/test_recovery.py"),
    Mutant("a lost lock is proof", "runs/workers/failure_detector.py", "if is_settled and unanchored >= GRACE_SECONDS and", "if is_settled and not member.is_anchored and", "tests/runs/test_suspicion.py"),
    Mutant("after a restart of the database every run is seized", "runs/workers/failure_detector.py", "is_settled = min(server_age, now - self._since) > self._ttl", "is_settled = True", "tests/runs/test_suspicion.py"),
    Mutant("a machine that slept takes everybody for dead", "runs/workers/failure_detector.py", "if member.silence > self._ttl and heard_nothing >= HEARD_NOTHING_SECONDS:", "if member.silence > self._ttl:", "tests/runs/test_suspicion.py"),
    Mutant("a worker that lost its place goes on sending", "runs/engine/visit.py", "if not (batch.is_intent and self.runtime.is_fenced()):", "if True:", "tests/engine/test_fenced.py"),
    Mutant("deaths without progress are not counted", "runs/workers/failover.py", "is_counted = cause == Cause.PROOF and not", "is_counted = False and not", "tests/runs/test_recovery.py tests/runs/test_incidents.py"),
    Mutant("a stop that was cut short is forgotten", DRIVE, "stop = self.tape.open_stop()\n", "stop = None\n", "tests/runs/test_interrupted_stops.py"),
    Mutant("a call that got no thread counts as sent", SEND, "return not self._has_begun", "return False", "tests/engine/test_threads.py"),
    Mutant("what was read is written twice after a cut", "runs/engine/visit.py", "if not is_written and not self.is_torn:", "if not is_written:", "tests/engine/test_torn.py"),
    Mutant("an answer is lost with another branch's cut", CALLS, "(visit.has_lost_lease or is_asked_about)", "visit.has_lost_lease", "tests/engine/test_torn.py"),
    Mutant("a lost run is overlooked after another error", "runs/engine/visit.py", "if self._lost is None or isinstance(error, StaleLease):", "if self._lost is None:", "tests/engine/test_torn.py"),
    Mutant("watchers are told an old number after a lost answer", STORE, "reply = Reply(written, self.now())", "reply = Reply(lost.after, self.now())", "tests/runs/test_lost_answers.py -k there_once"),
    Mutant("what was read is lost with a refused write", "runs/engine/visit.py", "                self._buffered[:0] = buffered\n", "                pass\n", "tests/engine/test_branch_stops.py"),
    # --- budgets
    Mutant("a debit isn't booked", POOLS, "            h := runs_debit(h, line);\n", "            NULL;\n", LIGHT),
    Mutant("a debit is booked twice", POOLS, "            h := runs_debit(h, line);\n", "            h := runs_debit(runs_debit(h, line), line);\n", LIGHT),
    Mutant("a result is debited without its number", "runs/engine/steps/spending.py", "attempt=route.attempt, n=route.n, model", "attempt=route.attempt, n=0, model", LIGHT),
    Mutant("a lost request isn't debited", THINK, "            await self._lose(past.route)\n", "            past.route = None\n", LIGHT),
    Mutant("a run that fails forgets its lost request", DRIVE, "of its effects\n        await debit_lost(self.journal, self.tape)\n", "of its effects\n", "tests/engine/test_budget.py -k left_behind"),
    Mutant("a run that is cancelled forgets its lost request", "runs/services/command.py", "not in_doubt and not tape.lost_requests() and", "not in_doubt and", "tests/runs/test_budget_time.py -k lost_request"),
    Mutant("what is set aside isn't counted", METER, "self.used, others, wanted)", "self.used, NOTHING_USED, wanted)", LIGHT),
    Mutant("a cap that was lowered meanwhile is not held", INTEND, "        PERFORM runs_afford(h, p_lines);\n", "        NULL;\n", "tests/runs/test_journal.py tests/runs/test_budgets.py -k 'cap or afforded'"),
    Mutant("a worker minds no cap", METER, "        if self.caps == UNLIMITED:\n", "        if True:\n", LIGHT),
    Mutant("a raise doesn't wake", RAISING, "    if is_enough and _stands_still(run, head) and held", "    if not is_enough and _stands_still(run, head) and held", "tests/runs/test_budgets.py -k raise"),
    Mutant("a raise ends a person's pause", RAISING, "_stands_still(run, head) and held_by(run) is None:", "_stands_still(run, head):", "tests/runs/test_budget_time.py -k asked_once"),
    Mutant("too little is an answer", ASKED, "    if short := list(breaches(", "    if short := list(() and breaches(", f"{RAISED} -k too_little"),
    Mutant("a raise counts nothing of what is set aside", ASKED, "        return sum((usage for _, usage in reserved_by(tape_of(run))), NOTHING_USED)", "        return NOTHING_USED", f"{RAISED} -k in_doubt"),
    Mutant("a raise forgets that the time is up", ASKED, "    if run.time_up_at is not None and run.time_up_at <= now:", "    if False:", f"{RAISED} -k ran_out"),
    Mutant("any raise gives time", ASKED, "resource_of(wait) == TIME and not is_time_given", "False", f"{RAISED} -k something_else"),
    Mutant("a raise of before undoes one of since", RAISING, "        check_seen(seen, before)\n", "        pass\n", f"{RAISED} -k saw"),
    Mutant("only the caps that are set are compared", ASKED, "if name in seen.model_fields_set and value", "if value is not None and value", f"{RAISED} -k lifted_since"),
    Mutant("what is too little begins a new week", RAISING, "            note(wait, lacking)\n", "            note(wait, lacking)\n            Wait.objects.filter(pk=wait.pk).update(deadline=act.now + 2 * ATTENTION)\n", f"{RAISED} -k too_little"),
    Mutant("the record of a raise tells no caps", RAISING, "    return act.done(*events, after={\"caps\": after})", "    return act.done(*events)", f"{RAISED} -k record"),
    Mutant("who pauses what waits for its budget holds nothing", "runs/services/lifecycle.py", "        return act.done(e.RunPaused(by=by.ref, payload=act.payload))\n    if run.owner", "        return act.done(e.RunPaused(by=\"budget\", payload=act.payload))\n    if run.owner", f"{RAISED} -k pauses"),
    Mutant("a child has no time of its agent's own", "runs/engine/steps/children.py", "time=given.time", "time=budget.time", "tests/engine/test_children.py -k own_time"),
    Mutant("a parent's page hears nothing of its children", "runs/services/command.py", "    notify.ring_above(run.parent)\n", "", "tests/console/test_live.py -k parents_page"),
    Mutant("a raise leaves the worker that was to stop", RAISING, "            act.flag(pause=False)  # its", "            pass  # its", "tests/runs/test_budget_time.py -k before_its_worker"),
    Mutant("a pause of before a retry holds a raise up", "runs/services/command.py", "(e.RunResumed, e.RunRetried)", "e.RunResumed", "tests/runs/test_budgets.py -k retried"),
    Mutant("giving up forgets calls in doubt", "runs/services/command.py", "if run.owner is None and not in_doubt and not", "if run.owner is None and not", "tests/runs/test_budgets.py -k doubt"),
    Mutant("time that is up while a cap is asked about is forgotten", RAISING, "        return  # people are being asked about something else", "        run.time_up_at = None\n        save(run, \"time_up_at\", now=database_now())\n        return  # people are being asked about something else", "tests/runs/test_budget_time.py -k 'two_who or asked_about'"),
    Mutant("a budget that is used up parks without its question", DRIVE, "        await self.journal.commit(Batch([event, wait.opened()], wait=wait))\n        return await self._stand_still(wait)\n\n    async def _fail", "        return await self._stand_still(wait)\n\n    async def _fail", LIGHT),
    Mutant("under a cap in dollars what has no price is free", THINK, "if event.usd_micro is None and visit", "if False and visit", "tests/engine/test_budget.py -k no_price"),
    # --- whom a run asks, and how long a conversation gets
    Mutant("a run asks what the installation says now", THINK, "self.models = sorted(ours[-1].models,", "self.models = sorted(visit.runtime.models(self.assistant),", WHOM),
    Mutant("whom it asks is not on record", THINK, "                await visit.commit(Batch([chosen]))  # not", "                ours = [chosen]\n                break  # not", WHOM),
    Mutant("a request that nobody served stays set aside", THINK, "            await self.visit.commit(Batch([self._debit(0, 0, model_calls=0)]))\n", "            pass\n", WHOM),
    Mutant("a refused request is taken to the next model", THINK, "if refusal.code == UNAVAILABLE and len", "if len", WHOM),
    Mutant("a model that doesn't serve is asked for ever", THINK, "            raise _NextModel from trouble\n", "            pass\n", WHOM),
    Mutant("a resumed conversation is as long as it was", COMPACTION, "            if COMPACTS in known:\n", "            if False:\n", WHOM),
    Mutant("what stands for a conversation may be longer than it", COMPACTION, "return said if len(said) <= most else", "return said if True else", WHOM),
    Mutant("a turn's answers are kept without its calls", COMPACTION, "            count -= 2\n", "            count -= 1\n", WHOM),
    Mutant("no answer of use is asked for without end", "runs/engine/thinking/loop.py", "if repairs > assistant.max_repairs and", "if False and", WHOM),
    Mutant("anybody moves a run to other models", "runs/services/authority.py", "        if action not in STOPPING:\n            return None\n", "        if action == MODELS:\n            return ROLES[0]\n        if action not in STOPPING:\n            return None\n", "tests/runs/test_models_moved.py"),
    Mutant("a model without a price is taken under a cap in dollars", "runs/services/thinking/moving.py", "if head.cap_usd_micro is not None and (unknown := prices.without_price(models)):", "if unknown := []:", "tests/runs/test_models_moved.py"),
    Mutant("a resume is a way around the budget", "runs/services/allowed/rules.py", "    if s.asks_budget:\n        then", "    if False:\n        then", "tests/runs/test_budgets.py tests/runs/test_budget_time.py -k 'resume or before_its_worker'"),
    # --- children
    Mutant("an end that was told is told again and again", ENDS, "    Run.objects.filter(pk__in=list(ended)).update(is_told=True)\n", "", f"{FAMILY} -k hears"),
    Mutant("what a child used isn't added", ENDS, "        _debit(head, new)\n", "", LIGHT),
    Mutant("what a child used is added with every telling", ENDS, "        _debit(head, new)\n", "        _debit(head, new + new)\n", LIGHT),
    Mutant("a child is made in a commit of its own", STORE, "            reply = await self._commit(batch.events, statement, values, made)\n", "            reply = await self._commit(batch.events, statement, values)\n            async with self.pool.connection() as apart:\n                for extra, parameters in made:\n                    await apart.execute(extra, parameters)\n", f"{ATTACKED} -k wire_loses"),
    Mutant("a cancel doesn't go down", WISHES, "{_PAIRS} above = 'cancelled' AND", "{_PAIRS} false AND", f"{FAMILY} -k cancel"),
    Mutant("a pause doesn't go down", WISHES, "        + _each(_rows(_PAUSE, parent, of=paused), lifecycle.pause, \"its parent was paused\", most)\n", "", f"{FAMILY} -k pause"),
    Mutant("what a pause held back stays so", WISHES, "        + _each(filter(_may_go_on, _rows(_RESUME, parent)), lifecycle.resume, \"its parent goes on\", most)\n", "", f"{FAMILY} -k pause"),
    Mutant("what a person paused goes on with its parent", WISHES, "filter(_may_go_on, _rows(_RESUME, parent))", "_rows(_RESUME, parent)", f"{FAMILY} -k pause"),
    Mutant("a child that its parent paused stays so when that has failed", WISHES, "above NOT IN ('paused', 'cancelled') END", "above NOT IN ('paused', 'cancelled', 'failed', 'completed') END", f"{ATTACKED} -k said_so"),
    Mutant("children that nothing can be done to stand in the way", WISHES, "        after = ids[-1]\n        yield from Run.objects.filter(pk__in=ids).order_by(\"id\")\n", "        yield from Run.objects.filter(pk__in=ids).order_by(\"id\")\n        return\n", f"{ATTACKED} -k keep_no_other"),
    Mutant("ends aren't looked for", SWEEPER, "    return sum(_tell(parent, children) for parent, children in ends.untold(besides=_passed_over()).items())\n", "    return 0\n", f"{ATTACKED} -k housekeeping"),
    Mutant("a worker looks for no ends", "runs/workers/housekeeping.py", "max(timers.tell_parents(), wishes.align())", "wishes.align()", f"{ATTACKED} -k housekeeping"),
    Mutant("for a call that is refused nothing is set aside", "runs/engine/steps/arguments.py", "visit.afford(call.slot, call.attempt, A_CALL, is_reserved=True)", "visit.afford(call.slot, call.attempt, A_CALL)", "tests/engine/test_screening.py -k what_is_left"),
    Mutant("what a child may use isn't set aside", CHILD, "_expected(caps), is_reserved=True)", "_expected(caps))", "tests/engine/test_children.py -k greedy"),
    Mutant("a child's end is believed by its row", READER, "    if not isinstance(event, _ENDS[state]):\n", "    if False:\n", f"{ATTACKED} -k another_kind"),
    Mutant("an end that a retry took back is told", READER, "AND later.kind IN ('RunRetried', 'UndoAsked'))", "AND later.kind = 'RunBegan')", f"{ATTACKED} -k took_back"),
    Mutant("anybody's run may stand in a child's place", ENDS, "    if first != child_id(str(parent), slot, attempt):\n", "    if False:\n", f"{ATTACKED} -k nobodys"),
    Mutant("a cancelled run is told of before its children are", ENDS, "      AND NOT EXISTS (SELECT 1 FROM runs_run g WHERE g.parent = c.id AND NOT g.is_told)\n    ORDER BY c.ended_at, c.id", "    ORDER BY c.ended_at, c.id", f"{ATTACKED} -k grandchild"),
    Mutant("an end wakes nobody whose wait is gone", ENDS, "            resolve(wait, event.state, by=f\"run:{event.child}\", now=now)\n    if run", "            resolve(wait, event.state, by=f\"run:{event.child}\", now=now)\n    if waits and run", f"{ATTACKED} -k wait_is_gone"),
    Mutant("a damaged family is tried before all others", SWEEPER, "ends.untold(besides=_passed_over())", "ends.untold()", f"{ATTACKED} -k starve"),
    Mutant("who started the parent decides its children's gates", "runs/services/authority.py", "            SELECT r.parent, above.is_before\n", "            SELECT NULL::uuid, false\n", f"{ATTACKED} -k decides_no_gate"),
    Mutant("what takes nothing of a budget that is used up is refused for ever", "runs/sql/0017_budgets.sql", "WHEN (said ->> 'tool_calls')::bigint > 0 AND h.tool", "WHEN h.tool", f"{ATTACKED} -k used_more"),
    Mutant("an undone transaction spoils the statements after it", "runs/journal/libpq.py", "        _prepared.pop(link, None)\n", "", "tests/runs/test_pool.py -k undone"),
    # --- starts by key and by the clock
    Mutant("a queued run is claimed out of turn", PLANNED, "r.parent IS NULL OR r.is_queued OR r.start_before", "r.parent IS NULL OR r.start_before", f"{BY_KEY} -k not_claimed"),
    Mutant("whoever lost to the index is told of a fault", KEYS, "            if _ONE not in str(error):\n                raise\n", "            raise\n", f"{BY_KEY} -k cross"),
    Mutant("starts of a key take no lock", KEYS, "    lock(name, wanted.business_key)\n", "", f"{BY_KEY} -k 'many or cross'"),
    Mutant("a replaced run is left alive", KEYS, "    for run in reversed(alive):\n        _cancel(", "    for run in ():\n        _cancel(", f"{BY_KEY} -k replacing"),
    Mutant("debounce ends what has begun", KEYS, "    if not last.has_begun:\n", "    if True:\n", f"{BY_KEY} -k later_start"),
    Mutant("nobody follows the end of a run", TURNS, "    if run.business_key and run.state in ENDED:\n", "    if False:\n", f"{BY_KEY} -k crosses_an_end"),
    Mutant("who came last begins first", KEYS, 'order_by("created_at", "id")', 'order_by("-created_at", "-id")', f"{BY_KEY} -k order"),
    Mutant("a damaged run holds up its key", TURNS, "except RecordDamaged as damaged:", "except ZeroDivisionError as damaged:", f"{BY_KEY} -k damaged_run"),
    Mutant("an end is passed on from for ever", TURNS, "ended_at=ended.ended_at).update(is_passed_on=True)", "ended_at=ended.ended_at).update(is_passed_on=False)", f"{BY_KEY} -k crash"),
    Mutant("the end after a retry counts for nothing", "runs/services/lifecycle.py", "None, None, \"\", False\n", "None, None, \"\", True\n", f"{BY_KEY} -k live_again"),
    Mutant("a run that goes on forgets its time", "runs/services/command.py", "    return None if run.is_queued else max(now, run.start_at or now)\n", "    return None if run.is_queued else now\n", f"{BY_KEY} -k at_its_time"),
    Mutant("a run that goes on forgets its place", "runs/services/command.py", "    return None if run.is_queued else max(now, run.start_at or now)\n", "    return max(now, run.start_at or now)\n", f"{BY_KEY} -k queued_still"),
    Mutant("verification minds no plan", "runs/verification/rows.py", "        yield from self._about_the_plan(row)\n", "", f"{BY_KEY} -k otherwise"),
    Mutant("a planned time that was noted is started again", FIRING, " and not schedule.firings.filter(planned_at=plan.start_for).exists():", ":", f"{BY_CLOCK} -k went_back"),
    Mutant("a schedule starts runs as somebody who may not", FIRING, "    if person is None or role is None:\n", "    role = role or _STARTERS[0]\n    if person is None:\n", f"{BY_CLOCK} -k any_more"),
    Mutant("the note is a transaction of its own", FIRING, "@transaction.atomic\ndef fire(", "def fire(", f"{BY_CLOCK} -k crash"),
    Mutant("what nobody rang for is never started", "runs/workers/starts.py", "    fire(firing.waiting(for_seconds=RUNG_SECONDS, besides=_passed_over()))\n", "", f"{BY_CLOCK} -k ring_that_is_lost"),
    Mutant("a damaged schedule ends the look at all", "runs/workers/starts.py", "        if is_transient(error) and not is_refusal(error):\n            raise\n", "        raise\n", f"{BY_CLOCK} -k damaged"),
    Mutant("what is resumed makes up for its pause", SET, "    schedule.next_at = upcoming(schedule, schedule.updated_at)[0]\n    schedule.save()\n    return _done(\"schedule_resume\"", "    schedule.next_at = schedule.created_at\n    schedule.save()\n    return _done(\"schedule_resume\"", f"{BY_CLOCK} -k record"),
    Mutant("whoever sets another time has started what somebody else set up", SET, "    is_theirs = _stays(schedule, body.agent, input_, by=by)\n", "    is_theirs = False\n", f"{BY_CLOCK} -k takes_the_start"),
    Mutant("whoever set a schedule up once has started whatever it starts", SET, "    return _text(schedule.agent, schedule.input) == _text(agent, input_)\n", "    return True\n", f"{BY_CLOCK} -k with_what_is_started"),
    Mutant("a time that comes twice is named twice", CRON, "                if self.is_hourly and not is_left_out:\n", "                if not is_left_out:\n", "tests/runs/test_cron.py -k twice"),
    Mutant("missed ones are made up for without end", DUE, "return [*late, *in_time][-MOST:]", "return [*late, *in_time]", "tests/runs/test_cron.py -k bounded"),
    # --- what is stored is checked before it is believed
    Mutant("a changed event is believed", "runs/journal/reader.py", "if link_hash(link.prev_hash, seq, epoch, at, body) != link.hash:", "if False:", "tests/runs/test_history.py"),
    Mutant("a damaged checkpoint is believed", "runs/journal/reader.py", "if checksum(node, visit, bytes(state)) == bytes(stored):", "if True:", "tests/runs/test_history.py"),
    Mutant(
        "branches are numbered as it happens", "runs/engine/steps/branches.py", "[(f\"{path}/{i}/\", work) for i, work in enumerate(works)]",
        "[(f\"{path}/{i}/\", work) for i, work in zip(__import__(\"random\").sample(range(len(works)), len(works)), works)]", "tests/engine/test_branches.py",
    ),
    # --- time, retries, bells
    Mutant("deadlines go by the worker's clock", STORE, "return self._reply.at + timedelta(seconds=time.monotonic() - self._heard)", "return datetime.now(self._reply.at.tzinfo)", LIGHT),
    Mutant("a retry repeats what was committed", "runs/engine/tape.py", "if ((slot.now.outcome is not None and not slot.now.has_happened) or slot.has_timed_out)", "if (slot.now.outcome is not None or slot.has_timed_out)", "tests/runs/test_retry.py"),
    Mutant("watchers are rung before the commit", STORE, "        async with self._committing:\n            while True:\n", "        async with self._committing:\n            self.on_write(self.run_id, self.seq + len(events))\n            while True:\n", "tests/runs/test_bell.py"),
    Mutant("a retry fails again over what nobody answered in time", "runs/engine/tape.py", "not slot.now.has_happened) or slot.has_timed_out)", "not slot.now.has_happened))", "tests/runs/test_questions.py"),
    Mutant("acts of no run may be left out of their list", "ledger/verification/registers.py", "        if n != self.n + 1:", "        if False:", "tests/ledger/test_registers.py"),
    Mutant("an act's code covers no place", "ledger/models.py", "if is_placed and self.n is not None else {}", "if False else {}", "tests/ledger/test_registers.py"),
    Mutant("the audit believes every row", "approvals/genuine.py", "        return None if marks.may_lack_code(row) else False", "        return None", "tests/approvals/test_genuine.py"),
    Mutant("a callback finds the wait that was given up", CALLBACKS, '.order_by("-n")', '.order_by("n")', "tests/runs/test_rights.py"),
    # --- the demo's agents
    Mutant("a report cites what nobody read", REVIEW, "        if unknown := sorted({n for n in numbers if not 1 <= n <= notes}):\n", "        if unknown := []:\n", f"{REVIEWED} -k cites"),
    Mutant("a document is read though it isn't the one that was found", READS, "    if text.sha256 != errand.sha256:\n", "    if False:\n", f"{REVIEWED} -k another_text"),
    Mutant("a model's quote is believed", READS, "reading.quote if _stands_in(reading.quote, text.body) else None", "reading.quote", f"{REVIEWED} -k quote"),
    Mutant("the library hands out an altered text", "durableagents/demo/literature/library.py", "    if found.sha256 != row[3]:\n", "    if False:\n", "tests/demo/test_library.py -k altered"),
    Mutant("a mail that the mailbox hasn't is taken for sent", MAIL, "    if not found.results:\n        return None\n    taken = found.results[0]\n", "    taken = (found.results or [_Taken(message_id=\"none\", received_at=\"never\")])[0]\n", f"{MAILED} -k dies"),
    Mutant("a mail that the mailbox has is asked about", MAIL, "    if not found.results:\n        return None\n", "    if found.results:\n        return None\n", f"{MAILED} -k dies"),
    Mutant("the vendor is created without the yes", MAIL, "await ctx.call(create_vendor, _record(state), grant=grant)", "await ctx.call(create_vendor, _record(state))", f"{MAILED} -k ran_out"),
    # --- attributes
    Mutant("what is set anew is set beside what was", "runs/sql/0022_attributes.sql", "    DELETE FROM runs_attribute WHERE run_id = NEW.run_id AND name IN (SELECT jsonb_array_elements_text(said -> 'named'));\n", "    DELETE FROM runs_attribute WHERE run_id = NEW.run_id AND name IN (SELECT jsonb_array_elements_text(said -> 'names'));\n", f"{FOUND} -k set_last"),
    Mutant("a replay sets attributes again", "runs/engine/steps/attributes.py", "    if record.now.result is not None:\n        return\n", "", "tests/engine/test_attributes.py -k whatever_dies"),
    Mutant("a child has no attributes of its own", "runs/journal/births.py", "    if spec.attributes is not None:\n        events.append(spec.attributes)\n", "", f"{FOUND} -k from_its_start"),
    Mutant("rows that nothing has set are nobody's business", "runs/verification/attributes.py", "                yield f\"{what} is nothing that the journal set\"\n", "", f"{FOUND} -k something_else"),
    Mutant("a page in an attribute's order begins with the last one's end", "runs/queries/attributes/statements.py", "{'<' if by.is_falling else '>'} (%s::{cast}", "{'<=' if by.is_falling else '>='} (%s::{cast}", f"{SEARCHED} -k attributes_order"),
    Mutant("a page that was cut short says that it is the last", "runs/queries/attributes/search.py", "    return Found(found, place)\n", "    return Found(found, None)\n", f"{SEARCHED} -k bound"),
    Mutant("who looks for one thing or another gets the first", "runs/queries/attributes/search.py", "            if len(some) < len(each):\n                return None\n", "", f"{SEARCHED} -k what_they_say"),
    # --- messages
    Mutant(
        "a run parks on a message that came in that moment", MESSAGES, "    IF EXISTS (SELECT 1 FROM runs_message WHERE run_id = p_run AND outcome = '') THEN\n        RETURN",
        "    IF false THEN\n        RETURN", "tests/messages/test_taking.py -k keeps_the_run_awake",
    ),
    Mutant("a message is answered twice, or before its turn", MESSAGES, "IF oldest IS DISTINCT FROM p_n THEN", "IF false THEN", "tests/messages/test_sending.py -k only_once"),
    Mutant(
        "a message ends a wait that its time has ended", MESSAGES, "WHERE run_id = p_run AND id = ANY (p_waits) AND resolved_at IS NOT NULL) THEN", "WHERE false) THEN",
        "tests/messages/test_taking.py -k wait_that_ends",
    ),
    Mutant("a message waits on after its run's end", MESSAGES, "SET outcome = 'ended'\n", "SET outcome = ''\n", "tests/messages/test_sending.py -k told_that"),
    Mutant("a message wakes nobody", SENDING, "    wake(run, now=database_now())\n", "", "tests/messages/test_taking.py -k wakes_a_run"),
    Mutant("an id stands for any message", SENDING, "known.name != name or not _is_same(run, known, request)", "known.name != name", "tests/messages/test_sending.py -k repeat_under"),
    Mutant("a message is taken by a run that is being cancelled", SENDING, "if head is not None and head.is_cancel_requested:", "if False:", "tests/messages/test_sending.py -k being_cancelled"),
    Mutant(
        "a replay forgets what a message changed", "runs/engine/messages/changes.py", "if place is None or event.place <= place]", "if place is None or event.place < place]",
        "tests/engine/test_messages.py -k changes_the_state",
    ),
    Mutant(
        "what a message changed between nodes dies with the worker", "runs/engine/messages/changes.py", "if event.place == BETWEEN]", "if False]",
        "tests/engine/test_messages.py -k between_nodes",
    ),
    Mutant(
        "a refused message leaves its traces", "runs/engine/messages/handling.py", 'return "refused", {"code"', 'return "refused", {**difference(before, plain(own)), "code"',
        "tests/engine/test_messages.py -k leaves_no_trace",
    ),
    Mutant("a message's answer stands before what it was made of", DRIVE, "outcome_of(events), [*buffered, *events])", "outcome_of(events), events)", "tests/engine/test_messages.py -k on_record_before"),
    Mutant("branches see each other's messages", "runs/engine/context.py", "if changes and not places.branch.under:", "if changes:", "tests/engine/test_messages.py -k branches_wait"),
    # --- log and progress
    Mutant("a replay's lines are kept again", "runs/sql/0022_attributes.sql", "        CONTINUE WHEN (one ->> 'n')::int < said;\n", "", f"{TELLING} -k adds_none"),
    Mutant("lines that were dropped are hidden", "runs/sql/0022_attributes.sql", "            t.lost := t.lost + (one ->> 'n')::int - said;\n", "", f"{TELLING} -k on_the_way"),
    Mutant("who has lost the run goes on telling of it", "runs/sql/0022_attributes.sql", "(lease = p_lease OR lease IS NULL)) THEN\n        RETURN false;", "(lease = p_lease OR lease IS NULL)) AND false THEN\n        RETURN false;", f"{TELLING} -k adds_nothing"),
    Mutant("a long log stays as long as it is", "runs/sql/0022_attributes.sql", "    IF t.lines > p_most THEN\n", "    IF false THEN\n", f"{TELLING} -k newest_stay"),
    *MORE,
    *RELEASES,
    *CERTIFIED,
    *CLAIMING, *GRANTING, *HANDED_OVER, *SETTLING,
    *DAMAGED,
    *DEADLINES,
    *DOCUMENTS,
    *VERSIONS,
    *UNDOING, *SIGHT_AND_QUEUES,
    *POLICIES,
    *CASES,
    *TALKS,
    *DEMOS,
    *MIGRATION,
    *FORKING,
    *OVERSIGHT,
    *TESTING,
    *VOTING,
    *HALTING,
    *PROVING,
    *PASSKEYS,
    *LOOKING,
]  # fmt: skip
