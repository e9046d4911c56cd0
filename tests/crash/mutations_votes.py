"""Seeded bugs of several people who decide one call. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

VOTES, GATES, SERVICES, CASE, STANDING, POLICY, SEATS, VERIFIED, EVENT = (
    "runs/engine/gate/votes.py", "runs/engine/steps/gates.py", "approvals/services.py", "approvals/votes/case.py",
    "approvals/queues/standing.py", "approvals/policy.py", "approvals/sql/0030_seats.sql", "approvals/verification.py",
    "ledger/kinds/votes.py",
)  # fmt: skip
STAGED, ENGINE = "tests/approvals/test_stages.py", "tests/engine/test_stages.py"
EFFECTS, SHOWN, INBOX, CHANGES = (
    "runs/story/effects.py", "approvals/votes/shown.py", "approvals/inbox.py", "approvals/changes/listed.py",
)  # fmt: skip
TOLD, PAGES, TRIED = (
    "tests/console/test_story.py",
    "tests/approvals/test_stages_shown.py",
    "tests/approvals/test_trying.py",
)

MANY = "tests/runs/test_why_many.py"

VOTING = [
    Mutant("one yes completes a quorum", VOTES, "    return len(approving(votes, question)) >= quorum\n", "    return True\n", f"{STAGED} -k two_of_finance"),
    Mutant("the engine uses what too few have said", VOTES, "        if len(yes) < of.quorum:\n", "        if False:\n", f"{ENGINE} -k used_for_nothing"),
    Mutant("one person counts twice", VOTES, "            if vote.people & heard:\n", "            if False:\n", f"{ENGINE} -k used_for_nothing"),
    Mutant("a deputy and their principal are two", EVENT, "frozenset({self.person} if self.principal is None else {self.person, self.principal})", "frozenset({self.person})", f"{ENGINE} -k used_for_nothing"),
    Mutant("an abstention is a yes", VOTES, "    yes = [x for x in votes if x.verdict == APPROVE and", "    yes = [x for x in votes if x.verdict != REJECT and", f"{ENGINE} -k counts_as_neither"),
    Mutant("a vote on another plan counts", VOTES, "(x.slot, x.approval_id, x.n, x.plan_hash) == about]", "(x.slot, x.approval_id, x.n) == about[:3]]", f"{ENGINE} -k used_for_nothing"),
    Mutant("the next stage is left out", GATES, "    if (plan := next_stage(question, record.votes)) is not None:\n", "    if (plan := None) is not None:\n", f"{ENGINE} -k in_order_and_not_before"),
    Mutant("the votes are not counted when they are used", GATES, "    if problem := lacking(question, record.asked, record.decisions, record.votes):\n", "    if problem := \"\":\n", f"{ENGINE} -k used_for_nothing"),
    Mutant("a grant of fewer people lets a call through", GATES, "    return rule.queue, rule.requirement.pairs\n", "    return rule.queue, ()\n", f"{ENGINE} -k of_fewer_people"),
    Mutant("who lets it fail only rejects", GATES, "        if payload_of(decision).get(\"then\") == FAIL:\n", "        if False:\n", f"{ENGINE} -k fails_the_run"),
    Mutant("a forged vote is counted", CASE, "        if not all(genuine([row for row in ours if row is not None])) or None in ours:\n", "        if False:\n", f"{STAGED} -k without_its_decision"),
    Mutant("a row says that one yes is enough", SERVICES, " and is_staged(plan) == (approval.case_id is not None)\n", "\n", f"{STAGED} -k is_not_believed"),
    Mutant("a second word is taken", STANDING, "    said = _words(read[\"seats\"])\n", "    said: dict[int, str] = {}\n", f"{STAGED} -k by_whatever_key"),
    Mutant("a principal votes after their deputy", SEATS, "         (SELECT NEW.person UNION SELECT (NEW.standing #>> '{deputy_of,person}')::bigint) AS p (person)\n", "         (SELECT NEW.person) AS p (person)\n", f"{STAGED} -k principal_are_one"),
    Mutant("each stage has seats of its own", SEATS, "    SELECT coalesce(a.case_id, a.id), p.person, NEW.id\n", "    SELECT a.id, p.person, NEW.id\n", f"{STAGED} -k gives_nobody_two_seats"),
    Mutant("who raised their own limit decides", STANDING, "        who = who.having(_set_up(read[\"changed\"]) or own_act(run, by.person, by.name))\n", "        who = who.having(own_act(run, by.person, by.name))\n", f"{STAGED} -k changed_who_decides"),
    Mutant("another stage than the one that was read is decided", SERVICES, "    if stage not in (None, case.stage):\n", "    if False:\n", f"{STAGED} -k not_the_one_that_was_read"),
    Mutant("a vote that was taken away is not missed", VERIFIED, "        for id, person in unvoted:\n", "        for id, person in ():\n", f"{STAGED} -k taken_away"),
    Mutant("nobody answered is told as a no", EFFECTS, ", \"expired\": \"expired\"}\n", "}\n", f"{TOLD} -k nobody_answered_about"),
    Mutant("a call that is asked about further is shown twice", EFFECTS, "    if earlier is not None and earlier.status == \"cleared\":\n", "    if False:\n", f"{TOLD} -k asked_about_further"),
    Mutant("a question without a call is an effect", EFFECTS, " in (None, \"\", NO_TOOL):\n", " in (None, \"\"):\n", f"{TOLD} -k guards_no_call"),
    Mutant("the case of a stage that is done says that the next one waits for it", SHOWN, "NEXT if own != DONE else _after", "NEXT if own else _after", f"{PAGES} -k how_far_they_are"),
    Mutant("who had their say is waited for", INBOX, "any(vote.row.person == person for", "any(False for", f"{PAGES} -k how_far_they_are"),
    Mutant("what is off is sent as a box", CHANGES, " if value is not False and name", " if name", f"{TRIED} -k second_person"),
    Mutant("why does not say that too few are left", "approvals/offered/decisions.py", "    hooks.remarks.append(who_is_missing)\n", "", f"{PAGES} -k nobody_is_left"),
    Mutant("whoever had their say is not told why a run waits", "approvals/offered/decisions.py", "(Forbidden, services.AlreadyVoted, services.AlreadyDecided)", "Forbidden", f"{PAGES} -k nobody_is_left"),
    Mutant("who is asked besides is not counted", SHOWN, "(approval.escalated_to or ()) if stage.state == NOW", "() if stage.state == NOW", f"{PAGES} -k asked_besides"),
    Mutant("a stage that is done is told as the next one", "approvals/api/present.py", "stage=stage_number(approval),", "stage=next((s.number for s in stages if s.state not in ('done', NEXT)), 1),", f"{PAGES} -k stage_is_read"),
    Mutant("why looks at each gate of a run", "approvals/offered/decisions.py", "for approval in _open(seen, MOST_OFFERED)]", "for approval in _open(seen, 9999)]", f"{MANY} -k fifty_gates"),
    Mutant("why does not say that there are more to decide", "approvals/offered/decisions.py", "    hooks.remarks.append(how_many_more)\n", "", f"{MANY} -k fifty_gates"),
    Mutant("what is due later is offered", "runs/queries/why/acts.py", "(wait.deadline is None, wait.deadline or wait.opened_at, wait.pk)", "wait.opened_at", f"{MANY} -k due_first_is"),
    Mutant("why offers each answer and signal", "runs/queries/why/acts.py", "    for wait in due_first(_outside(seen), MOST_OFFERED):\n", "    for wait in _outside(seen):\n", f"{MANY} -k questions_and_signals"),
]  # fmt: skip
