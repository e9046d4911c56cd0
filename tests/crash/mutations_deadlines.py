"""Seeded bugs in what time brings to questions. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

DUE, COURSE, TIMING, CALENDARS, AWAY, TIMES = (
    "approvals/deadlines/due.py", "approvals/timing/course.py", "runs/engine/gate/timing.py",
    "runs/engine/gate/calendars.py", "approvals/deadlines/away.py", "approvals/timing/verification.py",
)  # fmt: skip
STORIES, HOURS = "tests/approvals/test_deadlines.py", "tests/engine/test_calendars.py"

DEADLINES = [
    Mutant("what waits for ever expires", DUE, "    elif known.course.is_endless:\n", "    elif False:\n", f"{STORIES} -k waits_for_ever"),
    Mutant("what nobody answered is denied at once", DUE, "(step := _further(approval, known)) is not None:\n        _escalate", "(step := None) is not None:\n        _escalate", f"{STORIES} -k put_to_a_further_queue"),
    Mutant("it goes to a queue that was closed", DUE, "Queue.objects.filter(name=each[\"to\"], state=Queue.State.OPEN)", "Queue.objects.filter(name=each[\"to\"])", f"{STORIES} -k passed_over"),
    Mutant("an escalation has no code", DUE, "    row.seal()\n", "", f"{STORIES} -k both_may_decide"),
    Mutant("it goes further without its event", DUE, "    _look_again(approval, now if terms[\"at_once_if_away\"] else look_at(due))\n    journal(approval.run_id, event, by=by)\n", "    _look_again(approval, now if terms[\"at_once_if_away\"] else look_at(due))\n", f"{STORIES} -k put_to_a_further_queue"),
    Mutant("who was reminded is looked at for ever", DUE, "    _look_again(approval, look_at(known.due[len(passed) :]))\n", "", f"{STORIES} -k swept_nothing"),
    Mutant("a paused run is reminded of", DUE, "      AND r.state <> 'paused' AND NOT", "      AND NOT", f"{STORIES} -k nobody_is_reminded_of_what_is_paused"),
    Mutant("reminders do not stretch", TIMING, "stretch = min(2 ** min(self.reminded_late, 10), STRETCH)", "stretch = 1", f"{STORIES} -k stretch"),
    Mutant("the milder word wins", TIMING, "for w in STRICTEST_FIRST if w in (on_timeout", "for w in reversed(STRICTEST_FIRST) if w in (on_timeout", f"{STORIES} -k stricter_word"),
    Mutant("terms without a code put a deadline off", COURSE, "            if row.code is None or not is_genuine(key, row.run_id, row.seq, body, bytes(row.code)):\n", "            if False:\n", f"{STORIES} -k none_of_our_processes"),
    Mutant("a moved row gives more time", COURSE, "min(approval.deadline, course.ends_at)", "approval.deadline", f"{STORIES} -k somebody_moved"),
    Mutant("a forged escalation lets somebody decide", "approvals/queues/standing.py", "if row.is_genuine and row.queue != approval.queue", "if row.queue != approval.queue", f"{STORIES} -k forged_escalation"),
    Mutant("who has a deputy counts as away", AWAY, "    return not any(each.is_genuine and each.queue_id in (None, row.pk) for each in stands)\n", "    return stands is not None\n", f"{STORIES} -k has_a_deputy"),
    Mutant("verification knows no reminders that are missing", TIMES, "        if row.look_at not in self._looks(id, known):\n", "        if False:\n", f"{STORIES} -k somebody_moved"),
    Mutant("a forged timing counts", "approvals/calendars/asof.py", "        if not timing.is_genuine:\n", "        if False:\n", f"{STORIES} -k were_forged"),
    Mutant("working time is counted around the clock", TIMING, "calendar.after if calendar and is_working else plus", "plus", f"{STORIES} -k working_hours_count"),
    Mutant("a holiday is worked", CALENDARS, "            if day not in self.holidays:\n", "            if True:\n", f"{HOURS} -k friday_afternoon"),
    Mutant("the hour that there is twice counts once", CALENDARS, "ends = _moment(day, closes, zone, fold=1)", "ends = _moment(day, closes, zone, fold=0)", f"{HOURS} -k there_is_twice"),
]  # fmt: skip
