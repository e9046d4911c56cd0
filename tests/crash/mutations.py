"""Seeded bugs: each breaks one promise, by one small change to one file. A test, or the light schedules, has to notice every one.

Used by `python -m tests.crash.mutants`, which applies them to a copy of the checkout, never to the checkout itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`before` occurs once in `path`; with `after` in its place something of `check` must fail: tests, or light schedules."""

    name: str
    path: str
    before: str
    after: str
    check: str

    @property
    def is_sql(self) -> bool:
        return self.path.endswith(".sql")


LIGHT = "light"
GRANTS, LATE, NEWS, DRIVE, SWEEPER = "runs/sql/0005_grants.sql", "runs/late.py", "tests/runs/test_late_news.py", "runs/engine/drive.py", "runs/sweeper.py"
APPEND, STEPS, STORE, CALLS, DISPATCH, SETTLE = (
    "ledger/sql/append.sql", "runs/sql/steps.sql", "runs/store.py", "runs/engine/calls.py", "runs/engine/dispatch.py", "runs/settle.py",
)  # fmt: skip

CLAIMS, TROUBLE, HOST = "runs/sql/0007_claims.sql", "runs/trouble.py", "runs/host.py"

MUTANTS = [
    # --- one writer
    Mutant("no fence: a stale lease may write", APPEND, "IF p_epoch IS NOT NULL AND (h.epoch <> p_epoch", "IF p_epoch IS NOT NULL AND false AND (h.epoch <> p_epoch", "tests/runs/test_recovery.py"),
    Mutant(
        "a claim keeps epoch and lease", STEPS, "    h.epoch := h.epoch + 1;\n    h.lease := gen_random_uuid();\n",
        "    h.lease := coalesce(h.lease, gen_random_uuid());\n", LIGHT,
    ),
    Mutant("a claim waits for nobody and takes what is taken", CLAIMS, "CONTINUE WHEN r.is_solo <> p_solo OR r.ready_at IS NULL OR ", "CONTINUE WHEN r.is_solo <> p_solo OR ", "tests/runs/test_claims.py"),
    Mutant(
        "one damaged run ends every claim", CLAIMS,
        "            CONTINUE WHEN left(SQLSTATE, 2) IN ('40', '55');  -- somebody has the row: it is looked at again\n", "            RAISE;\n",
        "tests/runs/test_damage.py -k 'back'",
    ),
    Mutant(
        "several sweepers walk the same rows", CLAIMS, "    IF NOT pg_try_advisory_xact_lock(p_lock) THEN", "    IF false THEN",
        "tests/runs/test_recovery.py -k only_one_process",
    ),
    Mutant("a refusal is taken for an outage", TROUBLE, "            self._count += 1\n", "            self._count += 0\n", "tests/runs/test_refusals.py -k for_good"),
    Mutant("everybody makes room for a run that is driven alone", HOST, "found.chosen == self.worker.id and", "found.chosen is not None and", "tests/runs/test_solo.py -k every_worker"),
    Mutant("who is called and has no room tells nobody", HOST, "if self._is_called and self._is_busy:", "if self._is_called and not self._is_busy:", "tests/runs/test_calls.py -k no_room"),
    Mutant("a slot that falls free stays free", HOST, "if self._is_busy or not is_done:", "if not is_done:", "tests/runs/test_calls.py -k falls_free"),
    Mutant("sequence numbers have gaps", "ledger/sql/0004_codes.sql", "        h.seq := h.seq + 1;\n", "        h.seq := h.seq + 1 + (line.kind = 'RunParked')::int;\n", LIGHT),
    # --- intent before effect, result after it
    Mutant(
        "an intent is recorded after the call", CALLS, "        await self._intend(grant)\n        return await self.dispatch()",
        "        self.key = idempotency_key(self.visit.run_id, self.slot, self.attempt)\n        await self._send()\n"
        "        await self._intend(grant)\n        return await self.dispatch()", LIGHT,
    ),
    Mutant(
        "the result and its ledger entry are two commits", STORE,
        "        events, cut, kept = with_cut(events, snapshot)\n        (told, values)",
        "        if entries:\n            await self.record(events, wait=wait, gate=gate, usage=usage, snapshot=snapshot)\n            events = ()\n"
        "        events, cut, kept = with_cut(events, snapshot)\n        (told, values)", LIGHT,
    ),
    Mutant("a result has no ledger entry", DISPATCH, "[] if self.tool.is_pure else [self._entry(\"committed\", external_id=external, digest=digest_of(result))]", "[]", LIGHT),
    Mutant("an intent has no ledger entry", CALLS, "entry=None if tool.is_pure else self._entry(\"pending\")", "entry=None", LIGHT),
    # --- what may be repeated, and how
    Mutant(
        "an unsafe call in doubt is simply sent again", CALLS, "        elif self.tool.is_unsafe:\n            told = \"the worker", "        elif False:\n            told = \"the worker", LIGHT,
    ),
    Mutant(
        "an unsafe call without an answer is sent again", DISPATCH,
        "                trouble = error\n                if self.tool.is_unsafe:", "                trouble = error\n                if False:", LIGHT,
    ),
    Mutant(
        "a repeat has a key of its own", CALLS, "self.key, self.token = intent.get(\"key\"), intent.get(\"callback_token\")",
        "self.key, self.token = (intent.get(\"key\") or \"\") + \"-again\" or None, intent.get(\"callback_token\")", LIGHT,
    ),
    Mutant(
        "a repeat has a body of its own", CALLS, "self.callback_base = intent.get(\"callback_base\", self.callback_base)",
        "self.callback_base = str(self.callback_base)", "tests/engine/test_moved.py",
    ),
    Mutant("a repeat is not announced", DISPATCH, "            await self.announce()\n", "", LIGHT),
    Mutant("a key is trusted for ever", CALLS, "elif self.is_key_spent:", "elif False:", "tests/engine/test_key_ttl.py"),
    Mutant("the hook is not asked", CALLS, "answer = await ask_hook(self.tool, self.args, self._tool_call())", "answer = None", "tests/engine/test_classes.py"),
    Mutant("a call may be sent again while its sender lives", SETTLE, "if sender is None or is_gone(sender) or (", "if True or (", "tests/runs/test_sender.py"),
    # --- commits whose answer is lost
    Mutant(
        "a commit whose answer is lost counts as not done", STORE, "return claimed.reply if await self._is_written(events, seen, epoch) else None", "return None", "tests/runs/test_lost_answers.py -k there_once",
    ),
    Mutant(
        "a commit whose answer is lost counts as done", STORE, "return claimed.reply if await self._is_written(events, seen, epoch) else None", "return claimed.reply", LIGHT,
    ),
    Mutant("another worker's intent is taken for one's own", STORE, "if lets_go and await self._is_written(events, seen, epoch):", "if await self._is_written(events, seen, 2):", "tests/runs/test_lost_answers.py -k leave_to_send"),
    # --- gates
    Mutant(
        "an approval may be used again", GRANTS,
        " AND grant_expires_at > clock_timestamp()\n      AND (consumed_at IS NULL OR is_covered AND consumed_by = p_slot AND consumed_attempt < p_attempt);",
        " AND grant_expires_at > clock_timestamp();", "tests/runs/test_journal.py -k grant",
    ),
    Mutant("an approval is not bound to what was approved", GRANTS, "      AND grant_hash = g_hash AND grant_expires_at", "      AND grant_expires_at", "tests/runs/test_journal.py -k grant"),
    Mutant(
        "an approval is used up without an intent", GRANTS,
        "    IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold OR runs_is_answered(p_run, p_lines) THEN\n        RETURN runs_reply_of(h, false);\n    END IF;\n    FOREACH",
        "    UPDATE runs_wait SET consumed_at = clock_timestamp() WHERE run_id = p_run AND slot = g_slot AND kind = 'approval' AND h.is_pause_requested;\n"
        "    IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold OR runs_is_answered(p_run, p_lines) THEN\n        RETURN runs_reply_of(h, false);\n    END IF;\n    FOREACH",
        "tests/runs/test_journal.py -k wish",
    ),
    Mutant("an approval that lay too long is still good", GRANTS, " AND grant_expires_at > clock_timestamp()\n", "\n", "tests/runs/test_journal.py -k 'grant or yes'"),
    Mutant("an approval covers a call that had its effect", GRANTS, "p_attempt > 0 AND runs_is_undone(p_run, p_slot, p_attempt);", "p_attempt > 0;", "tests/runs/test_journal.py -k covers"),
    Mutant("a repeat needs no approval", GRANTS, "ELSIF invoked.attempt > 0 AND EXISTS", "ELSIF false AND EXISTS", "tests/runs/test_journal.py -k goes_out_again"),
    Mutant("an approval that expired is asked for once only", CALLS, "if isinstance(error, ApprovalExpired) or self.record.grants:", "if False:", "tests/runs/test_again.py"),
    Mutant("a gate is passed over", CALLS, "if rule is None and not record.grants:", "if True:", "tests/engine/test_gates.py"),
    Mutant("the last decision stands", "approvals/services.py", "if approval.state != ApprovalState.OPEN or wait.resolved_at is not None:", "if False:", "tests/approvals/test_decide.py"),
    # --- pause, cancel, park
    Mutant("an intent ignores a cancel", GRANTS, "IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold OR runs_is", "IF h.is_pause_requested OR h.is_on_hold OR runs_is", "tests/runs/test_journal.py -k wish"),
    Mutant("an intent ignores a pause", GRANTS, "IF h.is_pause_requested OR h.is_cancel_requested OR h.is_on_hold OR runs_is", "IF h.is_cancel_requested OR h.is_on_hold OR runs_is", "tests/runs/test_journal.py -k wish"),
    Mutant("a run parks on what was resolved before", STEPS, "OR (p_how IN ('park', 'settle') AND EXISTS", "OR (false AND EXISTS", "tests/runs/test_journal.py -k park"),
    Mutant("a cancelled run completes", STEPS, "OR (p_how = 'end' AND p_state <> 'cancelled' AND h.is_cancel_requested)", "OR false", "tests/runs/test_races.py -k overtaken"),
    Mutant("a drained run is forgotten", STEPS, "CASE WHEN p_how = 'release' THEN clock_timestamp() WHEN", "CASE WHEN", LIGHT),
    # --- the outside
    Mutant("a callback is taken twice", SETTLE, "if wait.resolution == \"received\" or wait.consumed_at is not None:", "if False:", "tests/runs/test_callbacks.py"),
    Mutant("a late callback overwrites a person's word", SETTLE, "if not _still_counts(run, wait):", "if False:", "tests/runs/test_callbacks.py"),
    Mutant("an answered call is repeated", "runs/sql/0004_functions_anew.sql", "IF line.kind IN ('ToolRedispatched', 'ToolOutcomeUnknown', 'ToolReconciled') AND EXISTS", "IF false AND EXISTS", "tests/runs/test_journal.py -k answered"),
    Mutant("the newest signal is given out first", "runs/sql/signals.sql", "taken_by IS NULL ORDER BY n LIMIT 1", "taken_by IS NULL ORDER BY n DESC LIMIT 1", "tests/runs/test_signals.py -k given_out"),
    Mutant("a deadline that moved is not looked at again", SWEEPER, "wait.resolved_at is not None or wait.deadline > now or", "wait.resolved_at is not None or", "tests/runs/test_recovery.py -k moved"),
    Mutant("a wait is settled twice", "runs/acts.py", "    if wait.resolved_at is not None:\n        raise IllegalTransition(\"settle a wait\"", "    if False:\n        raise IllegalTransition(\"settle a wait\"", "tests/runs/test_interrupted_stops.py"),
    # --- what comes late
    Mutant("a late answer rewrites the past", SETTLE, " and not tape.went_on_from(wait.slot)", "", NEWS),
    Mutant("late news is passed over at a retry", DRIVE, "if self.tape.unheard:", "if False:", NEWS),
    Mutant("a witness is heard while another worker repeats the call", LATE, "return run.owner is None or attempt.intent.replay_class == \"unsafe_on_replay\"", "return True", NEWS),
    Mutant("a verdict is written behind a run's end", LATE, "if run.state in ENDED or attempt.result", "if attempt.result", "tests/runs/test_late.py"),
    Mutant("what a run's end withdrew opens again whatever came", "runs/again.py", "if attempt.result is None and not attempt.is_settled and (is_asked or is_open):", "if True:", NEWS),
    Mutant("a callback's time runs out before its call was taken", SWEEPER, "if not is_accepted or is_asked:", "if False:", NEWS),
    # --- recovery
    Mutant("a dead worker's runs are left alone", "runs/recovery.py", "    if run.owner != incarnation_id:\n        return False\n    now = database_now()\n    process", "    return False\n    now = database_now()\n    process", LIGHT),
    Mutant("a worker on record as ended keeps its runs", "runs/recovery.py", "    for process in ended:\n", "    for process in ended[:0]:\n", "tests/runs/test_recovery.py"),
    Mutant("a living worker is taken for dead", "runs/fleet.py", "if not is_here or not is_running(row[2], row[3])]", "]", "tests/runs/test_recovery.py"),
    Mutant("a lost lock is proof", "runs/suspicion.py", "if is_settled and unanchored >= GRACE_SECONDS and", "if is_settled and not member.is_anchored and", "tests/runs/test_suspicion.py"),
    Mutant("after a restart of the database every run is seized", "runs/suspicion.py", "is_settled = min(server_age, now - self._since) > self._ttl", "is_settled = True", "tests/runs/test_suspicion.py"),
    Mutant("a machine that slept takes everybody for dead", "runs/suspicion.py", "if member.silence > self._ttl and heard_nothing >= HEARD_NOTHING_SECONDS:", "if member.silence > self._ttl:", "tests/runs/test_suspicion.py"),
    Mutant("a worker that lost its place goes on sending", "runs/engine/visit.py", "while self.runtime.is_fenced():", "while False:", "tests/engine/test_fenced.py"),
    Mutant("deaths without progress are not counted", "runs/recovery.py", "is_counted = cause == Cause.PROOF and not", "is_counted = False and not", "tests/runs/test_recovery.py tests/runs/test_incidents.py"),
    Mutant("a stop that was cut short is forgotten", DRIVE, "stop = self.tape.open_stop()\n", "stop = None\n", "tests/runs/test_interrupted_stops.py"),
    Mutant("a call that got no thread counts as sent", "runs/engine/perform.py", "return not self._has_begun", "return False", "tests/engine/test_threads.py"),
    Mutant("what was read is lost with a refused write", "runs/engine/visit.py", "                self._reads[:0] = reads\n", "                pass\n", "tests/engine/test_branch_stops.py"),
    # --- what is stored is checked before it is believed
    Mutant("a changed event is believed", "runs/history.py", "if link_hash(link.prev_hash, seq, epoch, at, body) != link.hash:", "if False:", "tests/runs/test_history.py"),
    Mutant("a damaged checkpoint is believed", "runs/history.py", "if checksum(node, visit, bytes(state)) == bytes(stored):", "if True:", "tests/runs/test_history.py"),
    Mutant(
        "branches are numbered as it happens", "runs/engine/branches.py", "[(f\"{path}/{i}/\", work) for i, work in enumerate(works)]",
        "[(f\"{path}/{i}/\", work) for i, work in zip(__import__(\"random\").sample(range(len(works)), len(works)), works)]", "tests/engine/test_branches.py",
    ),
    # --- time, retries, bells
    Mutant("deadlines go by the worker's clock", STORE, "return self._reply.at + timedelta(seconds=time.monotonic() - self._heard)", "return datetime.now(self._reply.at.tzinfo)", LIGHT),
    Mutant("a retry repeats what was committed", "runs/engine/tape.py", "if (isinstance(slot.now.result, (e.ToolFailed, e.ModelFailed)) or slot.has_timed_out)", "if (slot.now.result is not None or slot.has_timed_out)", "tests/runs/test_retry.py"),
    Mutant("watchers are rung before the commit", STORE, "        while True:\n            try:\n                reply = await self._once(*build(), also)\n", "        self.on_write(self.run_id, self.seq + len(events))\n        while True:\n            try:\n                reply = await self._once(*build(), also)\n", "tests/runs/test_bell.py"),
    Mutant("a retry fails again over what nobody answered in time", "runs/engine/tape.py", "(e.ToolFailed, e.ModelFailed)) or slot.has_timed_out)", "(e.ToolFailed, e.ModelFailed)))", "tests/runs/test_questions.py"),
    Mutant("acts of no run may be left out of their list", "ledger/registers.py", "        if n != self.n + 1:", "        if False:", "tests/ledger/test_registers.py"),
    Mutant("an act's code covers no place", "ledger/models.py", "if is_placed and self.n is not None else {}", "if False else {}", "tests/ledger/test_registers.py"),
    Mutant("the audit believes every row", "approvals/genuine.py", "        return None if marks.may_lack_code(row) else False", "        return None", "tests/approvals/test_genuine.py"),
    Mutant("a callback finds the wait that was given up", SETTLE, '.order_by("-n")', '.order_by("n")', "tests/runs/test_rights.py"),
]  # fmt: skip
