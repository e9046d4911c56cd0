"""Seeded bugs in who is on a case, and in the reasons that a queue offers. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

ACTS, SHOWN, SQL = "approvals/claims/acts.py", "approvals/claims/shown.py", "approvals/sql/0130_claims.sql"
QUEUES, QUEUE = "approvals/queues/acts.py", "approvals/queue_models.py"
STORIES, PAGES, REASONS, OFFERED, FORGED = (
    "tests/approvals/test_claims.py", "tests/console/test_claims.py", "tests/approvals/test_reasons.py",
    "tests/console/test_reasons.py", "tests/approvals/test_claims_forged.py",
)  # fmt: skip

CLAIMING = [
    Mutant("who may not decide it is on it", ACTS, "    may_decide(approval, facts_of(approval, approval.run, by, frozenset([by.role]), locked=True), by)\n", "    facts_of(approval, approval.run, by, frozenset([by.role]), locked=True)\n", f"{STORIES} -k may_not_decide"),
    Mutant("a claim is judged by a role that is being taken", ACTS, "frozenset([by.role]), locked=True), by)", "frozenset([by.role])), by)", f"{STORIES} -k wholly_before_or_after"),
    Mutant("there is always room for one more", ACTS, "if not is_on_it and len(others) >= _room(approval):", "if False:", f"{STORIES} -k told"),
    Mutant("a case is claimed without its lock", ACTS, '.select_for_update(of=("self",))', "", f"{STORIES} -k many_at_once"),
    Mutant("several people are let on where one word is missing", ACTS, "        return 1\n    said", "        return 2\n    said", f"{STORIES} -k as_there_is_room_for"),
    Mutant("one person at a time where several are asked", ACTS, "    if approval.case_id is None:\n", "    if True:\n", f"{STORIES} -k words_are_missing"),
    Mutant("what is over is claimed", ACTS, "    if approval.state != ApprovalState.OPEN:\n", "    if False:\n", f"{STORIES} -k ends_with_the_case"),
    Mutant("what is late is claimed", ACTS, "    if (late := closed_by_time(approval, approval.wait, now)) is not None:\n", "    if (late := closed_by_time(approval, approval.wait, now)) is None:\n", f"{STORIES} -k time_runs_out"),
    Mutant("taking over takes it from whoever is there", ACTS, "if any(one.id == take_over for one in others):\n        _end(Claim.objects.get(approval=approval, id=take_over or 0)", "if take_over and others:\n        take_over = others[0].id\n        _end(Claim.objects.get(approval=approval, id=take_over or 0)", f"{STORIES} -k claim_that_was_read"),
    Mutant("who took it over is not said", ACTS, "Claim.Why.TAKEN, now, by=by.ref)", "Claim.Why.TAKEN, now)", f"{STORIES} -k first_is_told"),
    Mutant("claiming again begins anew", ACTS, "    if own.until <= now:\n        _end(own, Claim.Why.LAPSED, max(own.at, own.until))\n", "    if own is not None:\n        _end(own, Claim.Why.LAPSED, max(own.at, now))\n", f"{STORIES} -k staying_longer"),
    Mutant("somebody lets go for another", ACTS, "mine = Claim.objects.filter(approval=approval, person=by.person)", "mine = Claim.objects.filter(approval=approval)", f"{STORIES} -k let_go_once"),
    Mutant("nobody is told that somebody is on it", ACTS, "    show_anew(approval.run_id)\n    return row\n", "    return row\n", f"{PAGES} -k told_at_once"),
    Mutant("it never lapses", SHOWN, "c.ended_at IS NULL AND c.until > clock_timestamp()\n", "c.ended_at IS NULL\n", f"{STORIES} -k lapses_by_itself"),
    Mutant("a forged claim is for ever", SHOWN, "      AND c.until <= clock_timestamp() + interval '{MOST_MINUTES + 1} minutes' AND c.at BETWEEN", "      AND c.at BETWEEN", f"{FORGED} -k forged"),
    Mutant("a closed account is on it", SHOWN, "u.id = c.person AND u.is_active\n", "u.id = c.person\n", f"{STORIES} -k takes_up_no_room"),
    Mutant("whoever lost the role is on it", SHOWN, """      AND ({_HOLDS.format(who="c.person")} OR EXISTS (""", "      AND (true OR EXISTS (", f"{STORIES} -k takes_up_no_room"),
    Mutant("the list of mine has everybody's", SHOWN, "AND c.person = %s))\"", "AND %s > 0))\"", f"{PAGES} -k narrowed"),
    Mutant("who has had their say is still on it", SQL, "AND c.person = NEW.person AND c.ended_at IS NULL", "AND c.person < 0 AND c.ended_at IS NULL", f"{STORIES} -k words_are_missing"),
    Mutant("a claim outlives its case", SQL, "    WHERE approval_id = NEW.id AND ended_at IS NULL;", "    WHERE approval_id = NEW.id AND ended_at IS NULL AND false;", f"{STORIES} -k ends_with_the_case"),
    Mutant("reasons are set by anybody", QUEUES, 'by, why = as_admin(by), justified("queue_reasons", body.justification)', 'why = justified("queue_reasons", body.justification)', f"{REASONS} -k who_may_not"),
    Mutant("one person sets reasons where two have to", QUEUES, '@second("queues", needs=PERMISSION)\n@transaction.atomic\ndef offer(', "@transaction.atomic\ndef offer(", f"{REASONS} -k two_people"),
    Mutant("reasons hide characters", QUEUES, '        check_text("reasons", each, LONGEST_REASON)\n', "", f"{REASONS} -k nobody_should_be_offered"),
    Mutant("the queue's code does not cover its reasons", QUEUE, 'for name in ("proof", "reasons", "again") if', 'for name in ("proof", "again") if', f"{REASONS} -k past_us"),
    Mutant("old rows lose their code", QUEUE, "if (said := getattr(self, name)) is not None}", "if (said := getattr(self, name)) is not None or name == 'reasons'}", f"{REASONS} -k from_before"),
    Mutant("forged reasons are offered", "approvals/queues/standing.py", "reasons=tuple(row.reasons or ()) if row.is_genuine else (),", "reasons=tuple(row.reasons or ()),", f"{REASONS} -k past_us"),
    Mutant("an address writes somebody's reason", "approvals/templatetags/inbox.py", 'return by_number.get(number or "", "")', 'return by_number.get(number or "", number or "")', f"{OFFERED} -k may_be_changed"),
    Mutant("who was handed a case is on nothing", SHOWN, "          AND h.ended_at IS NULL AND {_HOLDS", "          AND false AND {_HOLDS", f"{STORIES} -k handed_a_case"),
    Mutant("what was taken back keeps somebody on it", SHOWN, "          AND h.ended_at IS NULL AND {_HOLDS", "          AND {_HOLDS", f"{STORIES} -k handed_a_case"),
    Mutant("who was handed one case is on every other", SHOWN, "WHERE h.approval_id = c.approval_id AND h.deputy", "WHERE h.deputy", f"{STORIES} -k another_case"),
]  # fmt: skip
