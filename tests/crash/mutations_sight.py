"""Seeded bugs of who reads what runs hold, and of what a queue's row lets people do. See `mutations.py`, which has them
too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

SIGHT, FOLDED, ALONG = "ledger/web/seeing/viewers.py", "runs/story/folded.py", "runs/queries/payloads/reading.py"
READ, ASKED, VOUCHED = (
    "tests/approvals/test_payloads.py", "tests/approvals/test_asked.py", "tests/approvals/test_vouched.py",
)  # fmt: skip
AUTHORITY, AGAIN = "runs/services/authority.py", "tests/runs/test_tags_again.py"
BESIDE, KNOWN, FORGED = (
    "approvals/queues/along.py", "runs/journal/asked/queues.py", "tests/approvals/test_forged_queues.py",
)  # fmt: skip
BLIND = f"{READ} -k operator_from_whom"

SIGHT_AND_QUEUES = [
    Mutant("who sees all reads all", SIGHT, "        return self.reads_all or self.is_own(creator, tags)", "        return self.sees_all or self.is_own(creator, tags)", f"{READ} -k one_judgement"),
    Mutant("a superuser reads without having been given it", SIGHT, "    known: bool | None = getattr(user, _READS, None)\n", "    known: bool | None = getattr(user, _READS, None) or user.is_superuser or None\n", f"{READ} -k one_judgement"),
    Mutant("a page opens payloads for everybody", FOLDED, "        if not self._is_read:\n", "        if self._is_read is None:\n", BLIND),
    Mutant("what was drawn for a reader is shown to others", "runs/console/run_page.py", "    drawn = drawn if is_read else Drawn()", "    drawn = drawn or Drawn()", f"{READ} -k drawn_for_one"),
    Mutant("a list that was made for readers is shown to others", SIGHT, "    if sees_all and reads_all:\n", "    if sees_all:\n", BLIND),
    Mutant("the events' payloads are told to everybody", "ledger/api/views.py", "partial(event_row, is_read=reads(run_id))", "event_row", BLIND),
    Mutant("idempotency keys are told to everybody", "ledger/api/views.py", "        hidden = {} if reads(run_id) else {\"key\": None}\n", "        hidden: dict[str, None] = {}\n", BLIND),
    Mutant("a conversation is told to everybody", "runs/api/views.py", "        must_read(run_id)\n", "        pass\n", BLIND),
    Mutant("the details of waits are told to everybody", ALONG, "    return is_read or (wait.kind in _ASKING and any(is_asked(each, who) for each in put_to(wait)))", "    return True", BLIND),
    Mutant("why a run does not move is a secret to whoever may not read it", ALONG, " Wait.Kind.APPROVAL: (\"on_timeout\",), Wait.Kind.TIMER: (\"limit\", \"why\"),\n", "\n", f"{READ} -k does_not_move"),
    Mutant("who is asked at one queue reads what another is asked", ALONG, "    return who.reads_all or in_stead or wait_hooks.queues.get(name, name) in who.held", "    return bool(who.held)", f"{READ} -k an_approver_reads"),
    Mutant("an approver reads nothing of what they are asked", "approvals/queues/sight.py", " or is_asked(one.queue, who)}", "}", f"{READ} -k an_approver_reads"),
    Mutant("a right that was taken comes back with the next migrate", "durableagents/apps.py", "        if is_new and role in (OPERATOR, AUDITOR):", "        if role in (OPERATOR, AUDITOR):", f"{READ} -k from_the_start"),
    Mutant("an answer goes by a row that nobody here wrote", "runs/services/questions.py", "    if by.role != OPERATOR:\n        authority", "    if by.role == \"\":\n        authority", VOUCHED),
    Mutant("a stop goes by a row that nobody here wrote", AUTHORITY, "    if role != OPERATOR and not is_own:\n", "    if role == BUDGET:\n", VOUCHED),
    Mutant("a row that names all integrators lets them stop others' runs", AUTHORITY, "    is_own = role == INTEGRATOR and by.person is not None and by.person == run.creator\n", "    is_own = role == INTEGRATOR\n", VOUCHED),
    Mutant("a queue's row is not asked for its code", "approvals/queues/standing.py", "    if not row.is_genuine:\n        raise Forbidden", "    if False:\n        raise Forbidden", VOUCHED),
    Mutant("a gate is put to a queue that was closed a moment ago", "approvals/store.py", "FROM (SELECT approvals_may_ask(%s) AS is_open)", "FROM (SELECT length(%s) > 0 AS is_open)", ASKED),
    Mutant("a question is put to a queue that was closed a moment ago", "runs/journal/wait_hooks.py", "    return [(statement, asked) for statement in on_ask if asked]", "    return []", ASKED),
    Mutant("a queue may be closed while a question is being put to it", "approvals/sql/0009_asked.sql", "WHERE name = p_name FOR SHARE;", "WHERE name = p_name;", f"{ASKED} -k under_way"),
    Mutant("a queue that is put in past us makes a group a role", KNOWN, " for name, role, _, _, row in told[\"queues\"] if self.is_ours(row)}", " for name, role, _, _, row in told[\"queues\"]}", f"{FORGED} -k makes_no_group"),
    Mutant("whoever is put in charge past us reads what is asked", BESIDE, "    return row_of(Queue, row).is_genuine\n", "    return bool(key)\n", f"{FORGED} -k reads_nothing"),
    Mutant("what was a role once is one for ever", "ledger/web/roles.py", "    _named = _OF_SETTINGS | (frozenset(", "    _named = _named | (frozenset(", f"{FORGED} -k is_none_once"),
    Mutant("whoever stands in for somebody who is put in charge past us reads what is asked", BESIDE, " for queue in queues if queue in ours\n", " for queue in queues\n", f"{FORGED} -k reads_nothing"),
    Mutant("what was handed over is read again once a queue's row was changed past us", BESIDE, "any(is_ours(place) and _is_asked_there(went)", "any(_is_asked_there(went)", f"{FORGED} -k nothing_again"),
    Mutant("what was handed over is read again once it is said to have gone somewhere", BESIDE, "any(is_ours(place) and _is_asked_there(went)", "any(is_ours(place)", f"{FORGED} -k nothing_again"),
    Mutant("where a question is said to have gone is told of it", "approvals/notices/recipients.py", "            return genuine_places([self.approval])[self.approval.id]\n", "            return [self.approval.queue, *(self.approval.escalated_to or [])]\n", f"{FORGED} -k is_told_nothing"),
    Mutant("a repair of tags stops at what was missing itself", "runs/migrations/0056_tags_again.py", "    SELECT r.id, o.tag, r.created_at FROM of_origin o JOIN runs_run r ON r.parent = o.run_id OR r.came_from = o.run_id\n", "    SELECT r.id, o.tag, r.created_at FROM of_origin o JOIN runs_run r ON r.parent = o.run_id AND false\n", f"{AGAIN} -k in_the_moment"),
    Mutant("a repair of tags looks once", "runs/migrations/0056_tags_again.py", "        while cursor.rowcount > 0:\n", "        while False:\n", f"{AGAIN} -k meanwhile"),
]  # fmt: skip
