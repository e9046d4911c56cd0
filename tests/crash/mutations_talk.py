"""Seeded bugs in asking about cases and handing them over, and in whose time counts. See `mutations.py`."""

from __future__ import annotations

from tests.crash.mutant import Mutant

ASK, HAND, COMMON, CLOCK, STANDING, ALONG, TALK = (
    "approvals/consulting/inquiries.py", "approvals/consulting/delegations.py", "approvals/consulting/common.py",
    "runs/engine/gate/clock.py", "approvals/queues/standing.py", "approvals/queues/along.py",
    "approvals/consulting/verification.py",
)  # fmt: skip
DUE, TIMES, AMEND, COURSE = (
    "approvals/deadlines/due.py", "approvals/timing/verification.py", "approvals/cases/amending.py",
    "approvals/timing/course.py",
)  # fmt: skip
ASKED, HANDED, MOVED, API = (
    "tests/approvals/test_inquiries.py", "tests/approvals/test_delegations.py",
    "tests/approvals/test_deadlines_moved.py", "tests/api/test_consulting.py",
)  # fmt: skip
BESIDE = "tests/approvals/test_amending_beside.py"

LIVE = "tests/console/test_live_cases.py"

ATTACKED = "tests/approvals/test_talk_attacked.py"

CASES = "tests/approvals/test_many_cases.py"

TALKS = [
    Mutant("a forged inquiry shows a case", ALONG, "if row_of(Delegation if what == \"decide\" else Inquiry, row).is_genuine", "if what == \"asked\" or row_of(Delegation if what == \"decide\" else Inquiry, row).is_genuine", f"{ATTACKED} -k forged_inquiry_shows"),
    Mutant("a forged delegation is made genuine by being ended", HAND, "    if not row.is_genuine:\n", "    if False:\n", f"{ATTACKED} -k made_genuine"),
    Mutant("forged rows use up questions", ASK, "filter(approval=found.approval.pk) if row.is_genuine]", "filter(approval=found.approval.pk)]", f"{ATTACKED} -k use_up"),
    Mutant("a forged row stands where the next one belongs", COMMON, "    return next(each for each in count(n) if each not in taken)", "    return n", f"{ATTACKED} -k use_up"),
    Mutant("what was handed over is read by whoever has it for ever", ALONG, "AND holder.user_id = d.principal", "", f"{ATTACKED} -k read_no_more"),
    Mutant("who has no role left decides in another's place", "approvals/policy.py", "    if not who.may_act:\n", "    if False:\n", f"{ATTACKED} -k lost_their_account_decides"),
    Mutant("where a question is said to have gone shows its arguments", "approvals/queues/sight.py", "places[row.approval_id] += [row.queue] if row.is_genuine else []", "places[row.approval_id] += [row.queue]", f"{ATTACKED} -k said_to_have_gone"),
    Mutant("what a question's row says of where it went shows its arguments", "approvals/queues/sight.py", "    own |= {id for id, places in genuine_places(further).items() if any(is_asked(to, who) for to in places)}", "    own |= {one.id for one in further}", f"{ATTACKED} -k said_to_have_gone"),
    Mutant("who is asked hears of it with their next request", ASK, "    show_to(row.person)\n    return row", "    return row", f"{LIVE} -k asked_hears_of_it"),
    Mutant("who was handed a case hears of it with their next request", HAND, "    show_to(row.deputy)\n    return row", "    return row", f"{LIVE} -k taken_back"),
    Mutant("a deputy who asked hears of the answer with their next request", ASK, "    show_to(row.asker)\n    return row", "    return row", f"{LIVE} -k deputy_who_asks"),
    Mutant("what is rung for one person is heard by all", "runs/journal/notify.py", "if self.mark is not None and self.mark in payload.split(\",\")", "if self.mark is not None and \"@\" in payload", f"{LIVE} -k 'asked_hears_of_it or pass_over'"),
    Mutant("all that goes on in a run of others is told to whoever is asked", "runs/console/socket_watch.py", "return is_own or before != self._known", "return True", f"{LIVE} -k nothing_else_in_its_run"),
    Mutant("the end of a case is told to nobody who was asked about it", "runs/console/socket_watch.py", "return is_own or before != self._known", "return is_own", f"{LIVE} -k nothing_else_in_its_run"),
    Mutant("anybody answers what another was asked", ASK, "    if by.person is None or row.person != by.person:\n        raise Forbidden(f\"Only {row.to}", "    if by.person is None:\n        raise Forbidden(f\"Only {row.to}", f"{ASKED} -k nobody_else"),
    Mutant("an answer is given twice", ASK, "    if row.ended_at is not None:\n        raise AlreadyEnded(row)\n    known", "    known", f"{ASKED} -k nobody_else"),
    Mutant("whoever decides nothing asks about a case", COMMON, "    return found, may_decide(found.approval, facts, by)\n", "    return found, Standing(by.role)\n", f"{ASKED} -k only_who_may"),
    Mutant("what is decided is asked about", COMMON, "    if unlocked.state != ApprovalState.OPEN:\n        raise AlreadyDecided(unlocked)\n    head, run, wait, approval = locked_question(unlocked, by)", "    from runs.services.command import locked\n    head, run = locked(unlocked.run_id, under=by)\n    wait, approval = unlocked.wait, unlocked", f"{ASKED} -k is_decided"),
    Mutant("an auditor is asked, who may change nothing", COMMON, "    if not can_look(user):", "    if False:", f"{ASKED} -k t_be_asked"),
    Mutant("nobody is told that they are asked", ASK, '    _tell("inquiry", row, row.person)\n', "    pass\n", f"{ASKED} -k on_the_record"),
    Mutant("a clock stands longer with each question", COURSE, "            found.course, found.due = went_on(event.deadline, payload_of(event), was, found.due)", "            found.course, found.due = replace(went_on(event.deadline, payload_of(event), was, found.due)[0], has_stood=was.has_stood), found.due", f"{ASKED} -k no_longer_than"),
    Mutant("a clock goes on though one has not answered", ASK, "    went = _went_on(found, known) if known.asked == {n} else None", "    went = _went_on(found, known)", f"{ASKED} -k goes_on_with_the_answer"),
    Mutant("what wasn't needed is not taken back", CLOCK, "    for_ = max(timedelta(), min(stopped.left, between - stood))", "    for_ = stopped.left", f"{ASKED} -k goes_on_with_the_answer"),
    Mutant("a clock stands where nobody said that it should", CLOCK, "    left = course.may_stand\n", "    left = course.may_stand or timedelta(hours=1)\n", f"{ASKED} -k says_nothing"),
    Mutant("what is changed has the time that its clock stood for", AMEND, "    if course.stop is not None:\n", "    if False:\n", f"{ASKED} -k that_was_left"),
    Mutant("a forged inquiry is answered", ASK, "    if row is None or not row.is_genuine:", "    if row is None:", f"{ASKED} -k written_past_us"),
    Mutant("rows of inquiries that nobody made are passed over", TALK, "            if told is None:\n                yield f\"{what} has no event\"\n", "            if told is None:\n", f"{ASKED} -k row_without"),
    Mutant("to ask is to have a hand in the run", "runs/services/authority.py", '"talking": ["start", *TALKING]', '"talking": ["start"]', f"{ASKED} -k end_to_asking"),
    Mutant("what was handed over can be handed on", HAND, "    if standing.deputyship is not None:\n", "    if False:\n", f"{HANDED} -k role_of_their_own"),
    Mutant("what was taken back still decides", STANDING, "row.ended_at is not None, row.is_genuine, is_of_one=True", "False, row.is_genuine, is_of_one=True", f"{HANDED} -k taken_back_gives"),
    Mutant("a forged delegation decides", STANDING, "row.ended_at is not None, row.is_genuine, is_of_one=True", "row.ended_at is not None, True, is_of_one=True", f"{HANDED} -k written_past_us"),
    Mutant("one question handed over is all of them", STANDING, "WHERE d.approval_id = {{approval}} AND d.deputy = me.id", "WHERE d.deputy = me.id", f"{HANDED} -k just_this_one"),
    Mutant("whoever started the run is handed its question", HAND, "    _check(found.approval, user)\n", "    pass\n", f"{HANDED} -k t_have_it"),
    Mutant("a place that nobody gave is not found", TALK, "        if not held:\n", "        if False:\n", f"{HANDED} -k is_found"),
    Mutant("who was asked reads what is asked", "approvals/queues/sight.py", "    hidden -= seen.among(hidden)\n", "    hidden = set()\n", f"{API} -k reads_nothing"),
    Mutant("what was taken back is still in sight", ALONG, "WHERE d.deputy = {user} AND d.ended_at IS NULL", "WHERE d.deputy = {user}", f"{API} -k out_of_sight"),
    Mutant("of questions to others whoever is asked is told", "approvals/talk/shown.py", "if is_read or each.is_mine or each.is_own]", "if True]", f"{API} -k questions_to_others"),
    Mutant("the sweeper goes by the row's deadline", DUE, "    if (ends := runs_out(known.course, wait, now)) > now:", "    if (ends := runs_out(known.course, wait, now)) > now and False:", f"{MOVED} -k moved_forward"),
    Mutant("what came before its time is not found", TIMES, "        if line.at < self.of[id].course.deadline:", "        if False:", f"{MOVED} -k before_its_time"),
    Mutant("a forged escalation keeps the genuine one out", DUE, '    return (Escalation.objects.filter(approval=approval).aggregate(last=Max("n"))["last"] or 0) + 1', "    return 1", f"{MOVED} -k forged_escalation"),
    Mutant("what a question says of where it went is believed", DUE, "    asked = {approval.queue, *known.went}", "    asked = {approval.queue, *(approval.escalated_to or ())}", f"{MOVED} -k forged_escalation"),
    Mutant("what a wait says of where it went steers a run", "runs/services/authority.py", "[to for to in also or () if to in went[run_id]]", "also", f"{MOVED} -k forged_escalation"),
    Mutant("a change hands on a deadline that was moved", AMEND, "later(course, course.deadline, still)", "approval.deadline", f"{BESIDE} -k not_handed_on"),
    Mutant("a change takes a question from the further queue", AMEND, "    carried = _carried_on(following, new, known, now=now) if following.queue == approval.queue else []", "    carried = []", f"{BESIDE} -k from_nobody"),
    Mutant("what is over hides what was handed over", ALONG, "{_waiting(_HANDED, \"d\")} UNION ALL {_over(_HANDED)}", "{_over(_HANDED).replace('NOT (', '(TRUE OR ')}", f"{CASES} -k handed_over_first"),
    Mutant("what is answered hides what is asked", ALONG, "UNION ALL {_waiting(_ASKED, \"i\")} UNION ALL {_over(_ASKED)}", "UNION ALL {_over(_ASKED).replace('NOT (', '(TRUE OR ')}", f"{CASES} -k asked_first"),
    Mutant("rows written past us at one case hide another", ALONG, "f\"row_number() OVER (PARTITION BY {row}.approval_id ORDER BY {row}.n),\"", "\"\"", f"{CASES} -k written_past_us"),
    Mutant("rows that were numbered before all others come first", ALONG, " AND i.outcome <> 'withdrawn' AND i.n >= 0 ORDER", " AND i.outcome <> 'withdrawn' ORDER", f"{CASES} -k written_past_us"),
    Mutant("sockets forget what was handed over first", "approvals/talk/shown.py", "         JOIN approvals_approval a ON a.id = d.approval_id AND a.state = 'open'\n", "         JOIN approvals_approval a ON a.id = d.approval_id\n", f"{CASES} -k handed_over_first"),
]  # fmt: skip
