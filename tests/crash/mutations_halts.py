"""Seeded bugs in halts. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import LIGHT, Mutant

HALTS, CLAIMS, STILL, KNOWN, SEND, THINK, LIFTING = (
    "runs/sql/0070_halts.sql", "runs/sql/0071_claims_under_halts.sql", "runs/sql/0072_standing_still.sql",
    "runs/services/halts/known.py", "runs/engine/steps/send.py", "runs/engine/thinking/question.py",
    "runs/services/halts/lifting.py",
)  # fmt: skip
DOUBT, ASKING = "runs/engine/steps/doubt.py", "tests/halts/test_asking.py"
STORY, CLOCKS, ROWS, NAMES, UNKNOWN = (
    "tests/halts/test_halts.py", "tests/halts/test_standing_still.py", "tests/halts/test_providers.py",
    "tests/halts/test_unknown.py", "runs/queries/halts/unknown.py",
)  # fmt: skip

MOVED, COURSE, GATE_CLOCK = (
    "runs/sql/0121_stood_in_its_version.sql",
    "approvals/timing/course.py",
    "runs/engine/gate/clock.py",
)

HALTING = [
    Mutant("what stands still is overdue", "templates/approvals/inbox.html", "{% elif item.is_halted %}<span class=\"chip hold plain\">clock stands still</span>\n", "", "tests/approvals/test_deadlines_beside.py -k stands_still_every_page"),
    Mutant("why names a deadline that stands still", "runs/queries/why/words.py", "    if halt_of(s.head) is not None:  # its deadlines stand still\n", "    if False:\n", "tests/approvals/test_deadlines_beside.py -k stands_still_every_page"),
    Mutant("an intent is made under a halt", CLAIMS, "    PERFORM runs_check_halts(p_run, p_lines);\n", "", LIGHT),
    Mutant("a run under a halt is taken", CLAIMS, "                    IF hit.halt IS NOT NULL THEN\n", "                    IF false THEN\n", LIGHT),
    Mutant("a halt of a provider is of no request", HALTS, "            keys := keys || ('provider:' || split_part(convert_from(line.clear, 'UTF8')::json ->> 'model', ':', 1));\n", "            NULL;\n", f"{ROWS} -k no_request_goes"),
    Mutant("a request isn't looked at once more before it leaves", THINK, "        if await halts.is_held_back(visit, key, self.cleared_at):\n", "        if False:\n", f"{ROWS} -k after_its_intent"),
    Mutant("a call isn't looked at once more before it leaves", SEND, "    await check_halts(call)\n", "", f"{STORY} -k between_intent_and_call"),
    Mutant("a halted tool's other side is asked", DOUBT, "    if await _may_not_ask(call):\n        halts.hold_back(call.visit, call.key_of_tool)\n", "", f"{ASKING} -k after_the_lift_and_once"),
    Mutant("a halted tool's other side is asked for a lost answer", DOUBT, "    if await _may_not_ask(call):\n        await ask_person(call, f\"{reason}", "    if False:\n        await ask_person(call, f\"{reason}", f"{ASKING} -k lost_answer"),
    Mutant("a halt loses that a key was rejected", DOUBT, "    if await _may_not_ask(call):\n        await ask_person(call, why, is_sender_done=not call.lingers, rejection=rejection)\n", "    if await _may_not_ask(call):\n        await ask_person(call, why, is_sender_done=not call.lingers)\n", f"{ASKING} -k rejected_key"),
    Mutant("who ends a run under a halt has the other side asked", DOUBT, "    if tool is not None and await _is_halted(run, tool):\n", "    if False:\n", f"{ASKING} -k to_end_under"),
    Mutant("nobody sees that the other side is being asked", DOUBT, "    with call.visit.control.sending(call.slot, call.key_of_tool, call.tool.timeout):\n        return", "    if True:\n        return", f"{ASKING} -k who_halts_sees"),
    Mutant("deadlines go on under a halt", STILL, "                IF runs_put_off(w.id, w.run_id, w.opened_at, w.deadline) IS NOT NULL THEN\n", "                IF false THEN\n", f"{CLOCKS} -k what_was_left"),
    Mutant("halts that overlap count twice", MOVED, "unnest(range_agg(of.during", "unnest(array_agg(of.during", f"{CLOCKS} -k overlap"),
    Mutant("what was put off ahead stays so", STILL, "            UPDATE runs_wait SET deadline = deadline - ahead WHERE id = s.id AND resolved_at IS NULL;\n", "", f"{CLOCKS} -k put_off_ahead"),
    Mutant("a lift gives nothing back", LIFTING, "    while (dealt_with := _let_go()) and time.monotonic() < until:\n", "    while (dealt_with := 0) and time.monotonic() < until:\n", f"{STORY} -k claimed_when_it_is_lifted"),
    Mutant("who has no key lifts a halt", HALTS, "NEW.opens IS NULL OR sha256(NEW.opens) <> b.lock\n", "false\n", f"{ROWS} -k forged"),
    Mutant("a worker says that it stands still while a run works", KNOWN, "CASE WHEN x.running = 0 THEN clock_timestamp() END, x.running,", "clock_timestamp(), 0,", f"{ROWS} -k still_works"),
    Mutant("a lift that is refused empties what goes on", "templates/halts/lifting.html", "{% if about == h.row.halt and refused.act == \"stage\" %}{{ typed_there.tags }}", "{% if about == h.row.halt %}{{ typed_there.tags }}", "tests/console/test_halts.py -k in_stages"),
    Mutant("what a worker says and nobody can read takes the page away", "runs/queries/halts/standing.py", "    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):\n", "    except ZeroDivisionError:\n", "tests/halts/test_workers.py -k can_not_be_read"),
    Mutant("an act on many that nobody can read keeps all from being swept", "runs/workers/housekeeping.py", "            self._has_batch = _work_off()\n", "            self._has_batch = working.work(PASS_SECONDS)\n", "tests/runs/test_bulk.py -k nobody_can_read"),
    Mutant("an act on all that fit takes those that a search came to", "runs/queries/bulk/choosing.py", "    if filters.found.is_cut:\n", "    if False:\n", "tests/api/test_bulk.py -k a_search_looks_at"),
    Mutant("a tag's halt is told to everybody", "runs/queries/halts/standing.py", "    return Q() if who.sees_all else ", "    return Q() if True else ", "tests/api/test_halts.py -k may_know_the_tag"),
    Mutant("a misspelt name is not told", UNKNOWN, "if (scope, key) in missing]", "if False]", f"{NAMES} -k nothing_has"),
    Mutant("what other workers have is unknown", UNKNOWN, "v.parts -> 'tools' ? n.key", "false", f"{NAMES} -k other_workers"),
    Mutant("what is let through under a misspelt name is not told", UNKNOWN, "dict.fromkeys([*scope, *lets])", "dict.fromkeys([*scope])", f"{NAMES} -k goes_on_too"),
    Mutant("who sees few runs is told of others' tags", "runs/api/halts/views.py", "if sees_all or each.scope != Halt.Scope.TAG\n", "if True\n", "tests/api/test_halts.py -k misspelt"),
    Mutant("a run that is moved loses the time in which it stood still", MOVED, "h.scope = 'version' AND r.generation > 0 AND w.version = h.key", "h.scope = 'version' AND r.generation > 0 AND r.graph_id = h.key AND w.version = h.key", f"{CLOCKS} -k moved_off"),
    Mutant("a run is given the time in which another version stood still", MOVED, "(h.scope <> 'version' OR r.generation = 0)", "true", f"{CLOCKS} -k halted_earlier"),
    Mutant("what a question stood still is counted with each of its reminders", COURSE, "    since = datetime.fromisoformat(at) if isinstance(at, str) and are_moments([at]) else was.since\n", "    since = was.since\n", f"{CLOCKS} -k intervals_of_before"),
    Mutant("working hours that stood still are given back around the clock", COURSE, "sum_ += (to - from_) if calendar is None else calendar.between(from_, to)", "sum_ += to - from_", f"{CLOCKS} -k given_back_as_such"),
    Mutant("a deadline of working hours ends at night after a halt", COURSE, "    return later(course, course.deadline, stood(course, wait, now))\n", "    return course.deadline + stood(course, wait, now)\n", f"{CLOCKS} -k given_back_as_such"),
    Mutant("what is shown follows the wall under a halt", "approvals/timing/moving.py", "    put_off(approval, wait, ends if ahead is None or ahead <= now else max(ends, ahead))\n", "    Approval.objects.filter(wait=wait).update(deadline=wait.deadline)\n", f"{CLOCKS} -k given_back_as_such"),
    Mutant("verification believes any time that stood still", "approvals/timing/verification.py", "course.deadline < row.deadline <= most + MOST_AHEAD", "course.deadline < row.deadline", f"{CLOCKS} -k given_back_as_such"),
    Mutant("a clock that stops counts what stood still around it", GATE_CLOCK, "later(course.deadline, stood), [", "course.deadline + stood, [", "tests/engine/test_calendars.py -k gives_back"),
    Mutant("a question that is asked again has no time left", COURSE, "            found.course = was if over is None else replace(was, over=(*was.over, over))\n", "            found.course = was\n", "tests/runs/test_retry.py -k as_long_as_was_left"),
    Mutant("who wrote when a run had ended gives it time", "runs/services/retrying.py", "    return min(ended, now), now\n", "    return min(ended, run.ended_at or now), now\n", "tests/runs/test_retry.py -k gives_nobody_more"),
    Mutant("a retry's word of when it had ended is believed", "approvals/timing/verification.py", "                self.wrong += self._wrong_rest(line, event)\n", "", "tests/runs/test_retry.py -k gives_nobody_more"),
    Mutant("a form and a signal have no time left after a retry", "runs/services/retrying.py", "            elif wait.kind != Wait.Kind.TIMER:", "            elif wait.kind == Wait.Kind.WEBHOOK:", "tests/runs/test_retry.py -k as_long_as_was_left"),
    Mutant("a deadline that stands still is near", "approvals/notices/addressing.py", "    return now + WHILE_HALTED if is_standing else None\n", "    return None\n", "tests/approvals/test_deadlines_beside.py -k stands_still_is_not_near"),
    Mutant("a deadline that went further is near twice", "approvals/notices/addressing.py", "        if _is_told_later(case):\n", "        if False:\n", "tests/approvals/test_deadlines_beside.py -k where_it_went_is_told_once"),
    Mutant("what a halt and an end put off counts twice", "runs/services/retrying.py", " - stood_still(run.id, *over)  #", "  #", "tests/runs/test_retry.py -k as_long_as_was_left"),
    Mutant("who is reminded after a retry is so at once", "approvals/deadlines/due.py", "    due = shifted(known.due, known.course, stood(known.course, wait, now))\n", "    due = known.due\n", "tests/runs/test_retry.py -k as_late_as_they_were_asked"),
    Mutant("one that can not be followed keeps all others from it", "runs/services/halts/standing.py", "            if is_transient(error):\n                raise\n            log.exception(\"wait", "            raise\n            log.exception(\"wait", f"{CLOCKS} -k keeps_no_other"),
    Mutant("what ended before anybody looked is named wrong", "approvals/timing/verification.py", "        return not later or (most", "        return not later or (False and most", f"{CLOCKS} -k before_anybody_looked"),
    Mutant("reminders by a calendar follow the wall", COURSE, " or course.escalated or course.reminded_late\n", " or course.escalated\n", f"{CLOCKS} -k reminders_by_a_calendar"),
    Mutant("an event that makes no sense stops verification", "ledger/verification/runs.py", "            except UNREADABLE as error:\n                problems.append(no_sense(f\"event", "            except ZeroDivisionError as error:\n                problems.append(no_sense(f\"event", f"{CLOCKS} -k hides_nothing"),
    Mutant("a yes says of a paused run that it goes on", "runs/queries/why/afterwards.py", "    found = _STANDS.get(look(run, head, waits), \"\")\n", "    found = \"\"\n", "tests/console/test_inbox.py -k only_where_it_does"),
    Mutant("a yes says of a halted run that it goes on", "runs/queries/why/afterwards.py", "    return found or (_HALTED if halt_of(head) is not None else \"\")\n", "    return found\n", "tests/console/test_inbox.py -k only_where_it_does"),
    Mutant("a changed yes says of a paused run that it goes on", "approvals/cases/views.py", "{goes_on(opened)}", "The run goes on.", "tests/console/test_changes.py -k paused_run"),
]  # fmt: skip
