"""Seeded bugs in what time brings to questions. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import LIGHT, Mutant

DUE, COURSE, TIMING, CALENDARS, AWAY, TIMES = (
    "approvals/deadlines/due.py", "approvals/timing/course.py", "runs/engine/gate/timing.py",
    "runs/engine/gate/calendars.py", "approvals/deadlines/away.py", "approvals/timing/verification.py",
)  # fmt: skip
STORIES, HOURS, BESIDE = (
    "tests/approvals/test_deadlines.py", "tests/engine/test_calendars.py", "tests/approvals/test_deadlines_beside.py"
)  # fmt: skip
BOTH, AT_ONCE = "tests/approvals/test_both_queues.py", "tests/approvals/test_at_once.py"
GATES, ACTS = "runs/engine/steps/gates.py", "approvals/deadlines/acts.py"

DEADLINES = [
    Mutant("what waits for ever expires", DUE, "    elif known.course.is_endless:\n", "    elif False:\n", f"{STORIES} -k waits_for_ever"),
    Mutant("what nobody answered is denied at once", DUE, "(step := _further(approval, known)) is not None:\n        _escalate", "(step := None) is not None:\n        _escalate", f"{STORIES} -k put_to_a_further_queue"),
    Mutant("it goes to a queue that was closed", DUE, "Queue.objects.filter(name=each[\"to\"], state=Queue.State.OPEN)", "Queue.objects.filter(name=each[\"to\"])", f"{STORIES} -k passed_over"),
    Mutant("an escalation has no code", "approvals/timing/moving.py", "    row.seal()\n", "", f"{STORIES} -k both_may_decide"),
    Mutant("it goes further without its event", DUE, "    moving.look_again(approval, now if terms[\"at_once_if_away\"] else look_at(due))\n    journal(approval.run_id, event, by=by)\n", "    moving.look_again(approval, now if terms[\"at_once_if_away\"] else look_at(due))\n", f"{STORIES} -k put_to_a_further_queue"),
    Mutant("who was reminded is looked at for ever", DUE, "    moving.look_again(approval, look_at(due[len(passed) :]))\n", "", f"{STORIES} -k swept_nothing"),
    Mutant("a paused run is reminded of", DUE, "    if is_over or run.state == State.PAUSED or approval", "    if is_over or approval", f"{STORIES} -k nobody_is_reminded_of_what_is_paused"),
    Mutant("reminders do not stretch", TIMING, "stretch = min(2 ** min(self.reminded_late, 10), STRETCH)", "stretch = 1", f"{STORIES} -k stretch"),
    Mutant("the milder word wins", TIMING, "for w in STRICTEST_FIRST if w in (on_timeout", "for w in reversed(STRICTEST_FIRST) if w in (on_timeout", f"{STORIES} -k stricter_word"),
    Mutant("terms without a code put a deadline off", COURSE, "            if row.code is None or not is_genuine(key, row.run_id, row.seq, body, bytes(row.code)):\n", "            if False:\n", f"{STORIES} -k none_of_our_processes"),
    Mutant("a moved row gives more time", COURSE, "min(approval.deadline, course.ends_at)", "approval.deadline", f"{STORIES} -k somebody_moved"),
    Mutant("a forged escalation lets somebody decide", "approvals/queues/standing.py", "if row.is_genuine and row.queue != approval.queue", "if row.queue != approval.queue", f"{STORIES} -k forged_escalation"),
    Mutant("who has a deputy counts as away", AWAY, "            each.is_genuine\n            for each, absences", "            False\n            for each, absences", f"{STORIES} -k has_a_deputy"),
    Mutant("a deputy who is away as well counts as there", AWAY, " and not any(row.is_genuine for row in absences)\n", "\n", "tests/approvals/test_absences.py -k nobody_there"),
    Mutant("a deputy who may not sign in counts as there", AWAY, "JOIN auth_user s ON s.id = d.deputy AND s.is_active", "JOIN auth_user s ON s.id = d.deputy", "tests/approvals/test_absences.py -k nobody_there"),
    Mutant("verification knows no reminders that are missing", TIMES, "        if row.look_at not in self._looks(id, known) and not self._is_looked_at_later(known, row):\n", "        if False:\n", f"{STORIES} -k somebody_moved"),
    Mutant("a forged timing counts", "approvals/calendars/rows.py", "for each in told) if row.is_genuine), None)", "for each in told)), None)", f"{STORIES} -k were_forged"),
    Mutant("working time is counted around the clock", TIMING, "calendar.after if calendar and is_working else plus", "plus", f"{STORIES} -k working_hours_count"),
    Mutant("a holiday is worked", CALENDARS, "            if day not in self.holidays:\n", "            if True:\n", f"{HOURS} -k friday_afternoon"),
    Mutant("the hour that there is twice counts once", CALENDARS, "fold=int(closes != MINUTES))", "fold=0)", f"{HOURS} -k there_is_twice"),
    Mutant("what went further counts what stood still before", "approvals/timing/moving.py", "    standing.count_from(wait, now)\n", "", f"{BESIDE} -k whatever_stood_still_before"),
    Mutant("people are reminded under a halt", DUE, "wait.deadline <= now or standing.is_halted(run.pk)", "wait.deadline <= now", f"{BESIDE} -k nobody_is_reminded_under_a_halt"),
    Mutant("what the further queue wants shown is not wanted", "approvals/policy.py", "if each.name == standing.queue)]\n", "if False)]\n", f"{BESIDE} -k what_either_queue_asks"),
    Mutant("nobody is told where it went", "approvals/notices/recipients.py", "            return genuine_places([self.approval])[self.approval.id]\n", "            return [self.approval.queue]\n", f"{BESIDE} -k told_that_it_went_further"),
    Mutant("what waits for ever has a deadline that is near", "approvals/notices/addressing.py", "if approval is None or is_endless(approval):", "if approval is None:", f"{BESIDE} -k no_deadline_that_is_near"),
    Mutant("code names a further queue for all stages", TIMING, 'return replace(self, escalate_to="")', "return self", f"{BESIDE} -k time_of_its_own_queue"),
    Mutant("a policy's question goes where code says", GATES, "time=_time(call) if demanded is None else Time(demanded.within)", "time=_time(call)", f"{BESIDE} -k goes_nowhere_that_code_says"),
    Mutant("one person sets deadlines where two have to", ACTS, '@second("queues", needs=PERMISSION)\n@transaction.atomic\ndef set_timing(', "@transaction.atomic\ndef set_timing(", f"{BESIDE} -k two_people_change"),
    Mutant("a queue is let to work by a calendar that is being removed", ACTS, "        _hold(body.calendar, shared=True)\n", "        pass\n", f"{AT_ONCE} -k removed-calendar"),
    Mutant("a calendar is removed while a queue is let to work by it", ACTS, "    _hold(name)\n    last", "    last", f"{AT_ONCE} -k named-calendar"),
    Mutant("questions are to go to a queue that is being removed", "approvals/queues/acts.py", "    hold(each for each in others if each > name)\n", "", f"{AT_ONCE} -k removed-steps"),
    Mutant("a policy asks at a queue that is being removed", "approvals/policies/acts.py", "    hold([body.queue] if body.queue else ())", "    hold(())", f"{AT_ONCE} -k removed-policy"),
    Mutant("that a queue's calendar was removed is told to nobody", "approvals/calendars/asof.py", " and (calendar is None or calendar.is_removed):", " and calendar is None:", "tests/approvals/test_calendars_set.py -k told_in_the_log"),
    Mutant("a reminder follows the other without a pause", TIMING, "least = max(1, _minutes(span))", "least = _minutes(span)", f"{STORIES} -k has_at_least_a_minute"),
    Mutant("who has voted where it went is told that they have no part", "approvals/policy.py", "key=lambda no: (no.is_of_limit, no.has_voted, not no.is_stranger)", "key=lambda no: no.is_of_limit", f"{BESIDE} -k one_of_those_that_it_takes"),
    Mutant("verification believes a wait where it went", "runs/verification/waits.py", '            "also": known.also or None,\n', "", f"{BESIDE} -k gives_nobody_a_part"),
    Mutant("what nobody answered is lost in the schedules", DUE, "    elif (step := _further(approval, known)) is not None:\n", "    elif False:\n", LIGHT),
    Mutant("a yes at the further queue is said under the role of the first one", "approvals/services.py", "    return standing, replace(by, role=standing.role)\n", "    return standing, by\n", f"{BOTH} -k 'says_yes or approved_where'"),
    Mutant("who decides at both approves at neither", "approvals/services.py", "    _must_be_strong(standing, by)\n    return standing, replace", "    _must_be_as(standing, facts, by)\n    _must_be_strong(standing, by)\n    return standing, replace", f"{BOTH} -k 'says_yes or approved_where'"),
    Mutant("a change is lost with the yes to it", "approvals/cases/amending.py", "(ProofNeeded, KeyCannotProve, InvalidInput, Forbidden)", "(ProofNeeded, KeyCannotProve, InvalidInput)", f"{BOTH} -k change_stands"),
    Mutant("a change is offered where none is made", "approvals/brief.py", "return isinstance(self.standing, Standing) and bool(self.standing.queue)", "return False", f"{BOTH} -k offered_no_change"),
]  # fmt: skip
