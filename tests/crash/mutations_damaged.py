"""Seeded bugs in what nobody can read, and in what should not get through or stand still. See `mutations.py`, which has
them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

ROWS, ALONG, DAMAGE = "approvals/calendars/rows.py", "approvals/queues/along.py", "tests/approvals/test_damaged.py"

AMEND, CALL, SCHEMA, FIELDS, WORDS = (
    "approvals/cases/amending.py", "runs/engine/steps/logical_call.py", "runs/services/answer_schema.py",
    "tests/approvals/test_amended_fields.py", "tests/runs/test_answer_words.py",
)  # fmt: skip

AMEND, CALL, SCHEMA, FIELDS, WORDS = (
    "approvals/cases/amending.py", "runs/engine/steps/logical_call.py", "runs/services/answer_schema.py",
    "tests/approvals/test_amended_fields.py", "tests/runs/test_answer_words.py",
)  # fmt: skip

RECORDS, DECIDED = "tests/approvals/test_forged_records.py", "tests/approvals/test_forged_decisions.py"
GENUINE = "tests/approvals/test_genuine.py"

DAMAGED = [
    Mutant("a row that nobody can read ends each run", ROWS, "    except _UNREADABLE:\n", "    except ZeroDivisionError:\n", f"{DAMAGE} -k steps_that_nobody_can_read"),
    Mutant("a forged version stands in the way", ROWS, "for each in told) if row.is_genuine), None)", "for each in list(told)[:1]) if row.is_genuine), None)", f"{DAMAGE} -k takes_nothing_away"),
    Mutant("a forged deputy is shown what the other decides", ALONG, "for row, whom, queues in deputies if row.is_genuine for", "for row, whom, queues in deputies for", f"{DAMAGE} -k is_shown_nothing"),
    Mutant("what changes along with a field is sent", AMEND, "    if moved:\n", "    if False:\n", f"{FIELDS} -k changes_along_with_a_field_and_may_not"),
    Mutant("a worker sends what changed along with a field", CALL, "        if moved:\n", "        if False:\n", f"{FIELDS} -k worker_sends_nothing"),
    Mutant("a stage that was not read is approved with changes", AMEND, "    check_stage(approval, wait, stage)\n", "", f"{FIELDS} -k stage_that_was_read"),
    Mutant("a pattern that nobody can run safely is run", SCHEMA, '"pattern": _pattern, "patternProperties"', '"patternProperties"', f"{WORDS} -k run_safely"),
    Mutant("an address with a NUL asks the database", "ledger/web/page_base.py", "            raise Http404  # nothing", "            pass  # nothing", "tests/console/test_addresses.py"),
    Mutant("whoever is back has a deputy still", "approvals/deadlines/away.py", "    if stands_in is not None:\n", "    if False:\n", "tests/approvals/test_absences.py -k ends_with_it"),
    Mutant("nobody verifies what is set up", "approvals/queues/verification.py", "        if not row.is_genuine:\n", "        if False:\n", f"{DAMAGE} -k each_row_that_was_forged"),
    Mutant("whatever is written about a run counts as a step of it", "runs/fleet/incidents.py", "kind = ANY(%(further)s))", "kind <> 'RunClaimed')", "tests/runs/test_poison.py -k 'kills or policies or outside_meanwhile'"),
    Mutant("a step on record is no progress", "runs/fleet/incidents.py", "EXISTS (SELECT 1 FROM ledger_event WHERE run_id = %(run)s AND seq > %(claimed)s AND kind = ANY", "false AND EXISTS (SELECT 1 FROM ledger_event WHERE run_id = %(run)s AND seq > %(claimed)s AND kind = ANY", "tests/runs/test_poison.py -k once_are_progress"),
    Mutant("what comes from outside is the next step", "runs/fleet/incidents.py", "AND e.kind <> ALL(%s) ORDER", "AND (true OR e.kind <> ALL(%s)) ORDER", "tests/runs/test_poison.py -k not_the_next_step"),
    Mutant("a run without its head is held by somebody", "runs/workers/failover.py", "        if Head.objects.filter(run_id=run_id).exists():\n", "        if True:\n", "tests/runs/test_missing_rows.py -k without_its_head"),
    Mutant("a sender whose row is gone is gone", "runs/services/settling/senders.py", "        return _of_nobody(is_attested) if now - sent_at < KEPT else \"\"\n", "        return \"\"\n", "tests/runs/test_sender.py -k no_proof"),
    Mutant("a list can't be read past a number that nothing of ours has", "ledger/web/cursors.py", "'-?' if most == ROW", "'' if most == ROW", "tests/approvals/test_trail.py -k hide_nothing"),
    Mutant("an hour that two shifts have passes twice", "runs/engine/gate/calendars.py", "            begins = max(begins, last)\n", "", "tests/engine/test_calendars.py -k cut_in_two"),
    Mutant("a forged doubt is settled", "runs/services/reconciling.py", "    if attempt.waits.get((\"reconcile\", wait.n), \"\") is not None:\n", "    if False:\n", "tests/runs/test_forged_doubts.py -k settled_by_nobody"),
    Mutant("a question that is over is answered once its row says otherwise", "runs/services/calls.py", "(str(wait.kind), wait.n), \"\") is not None:\n", "(str(wait.kind), wait.n), \"\") == \"\":\n", "tests/runs/test_forged_doubts.py -k not_asked_again"),
    Mutant("a question is answered whose row says another thing than its event", "runs/services/calls.py", "    return event if all(row.get(name) == value for name, value in detail_of(event).items()) else None\n", "    return event\n", "tests/runs/test_forged_doubts.py -k says_otherwise"),
    Mutant("the other side is asked by a forged question", "runs/services/settling/upstream.py", "    must_be_asked(act, wait)\n", "", "tests/runs/test_forged_doubts.py -k nobody_is_asked"),
    Mutant("a forged halt takes the page away", "runs/queries/halts/unknown.py", " if isinstance(name, str)]", "]", "tests/halts/test_unknown.py -k forged_row"),
    Mutant("a forged question is answered", "runs/services/questions.py", "    if asked is None:\n        raise RecordDamaged(wait.run_id, \"the event that asks this\")\n", "", "tests/runs/test_forged_doubts.py -k not_answered"),
    Mutant("a zone that there isn't keeps everybody from being told", "approvals/notices/timing.py", "    except (ValueError, KeyError, OSError):\n", "    except ZeroDivisionError:\n", "tests/approvals/test_notices_damaged.py -k wishes"),
    Mutant("one notice of no kind keeps the others from the page", "approvals/notices/own.py", "    if row.notice.kind not in KINDS:\n", "    if False:\n", "tests/approvals/test_notices_damaged.py -k takes_no_page"),
    Mutant("one notice that can't be read keeps the others from the page", "approvals/notices/own.py", "        except Exception as error:\n", "        except ZeroDivisionError as error:\n", "tests/approvals/test_notices_damaged.py -k takes_no_page"),
    Mutant("a notice of a kind that there isn't is given up as damaged", "approvals/notices/courier.py", "    if kind not in KINDS:\n", "    if False:\n", "tests/approvals/test_notices_damaged.py -k takes_no_digest"),
    Mutant("one notice that can't be read ends a digest", "approvals/notices/courier.py", "            if is_transient(error) or isinstance(error, OSError):\n", "            if True:\n", "tests/approvals/test_notices_damaged.py -k takes_no_digest"),
    Mutant("a 24:00 that nobody's clock has keeps everybody from being told", "ledger/clock.py", "        connection.connection.adapters.register_loader(\"time\", ReadableHour)\n", "", "tests/approvals/test_notices_damaged.py -k no_clock_here"),
    Mutant("a session that nobody can judge keeps all sockets open", "runs/console/socket_watch.py", "answers = await in_thread(judged, list(self._ends))", "answers = await in_thread(verdicts, list(self._ends))", "tests/console/test_live.py -k nobody_can_judge"),
    Mutant("what the database refuses is taken for an outage", "runs/console/socket_watch.py", "    except Exception as error:\n        if is_transient(error):\n            raise\n    found", "    except Exception as error:\n        if True:\n            raise\n    found", "tests/console/test_live.py -k database_refuses"),
    Mutant("a connection is cut at a socket that it is not on any more", "approvals/notices/mail.py", "        self.wire = wire\n", "        self.wire = self.wire or wire\n", "tests/approvals/test_chats.py -k cut_off"),
    Mutant("a mail server that shakes hands slowly is not cut off", "approvals/notices/mail.py", "return super().starttls(context=_Shaking(cut, context))", "return super().starttls(context=context)", "tests/approvals/test_mail.py -k drips"),
    Mutant("quiet hours that began meanwhile are not kept", "approvals/notices/courier.py", "    if later <= now:\n", "    if True:\n", "tests/approvals/test_notice_wishes.py -k began_meanwhile"),
    Mutant("what failed rings again at night", "approvals/notices/courier.py", "    later = after_quiet(wish, database_now() + timedelta(seconds=retry_seconds(unit.number, outcome.retry_after)))\n", "    later = database_now() + timedelta(seconds=retry_seconds(unit.number, outcome.retry_after))\n", "tests/approvals/test_phones.py -k repeated_in_quiet_hours"),
    Mutant("who has switched it off meanwhile is told", "approvals/notices/courier.py", "kind in _CHOSEN and each.by not in ways_of(wish, kind)", "False", "tests/approvals/test_notice_wishes.py -k switched_it_off_meanwhile"),
    Mutant("tries that nobody can read stop all mail", "approvals/outbox/models.py", " for each in read if _is_try(each)] if isinstance(read, list) else []", " for each in read]", "tests/approvals/test_notices_damaged.py -k came_of"),
    Mutant("a server that gives no answer is waited for by every message", "approvals/notices/chat.py", "            _leave_alone(parts.netloc.lower())\n", "            pass\n", "tests/approvals/test_chats.py -k in_vain"),
    Mutant("a number that nobody can read takes the audit away", "ledger/models.py", "        except (ValueError, RecursionError):\n", "        except ZeroDivisionError:\n", f"{RECORDS} -k audit_lists"),
    Mutant("what is nested too deeply is shown", "ledger/models.py", "return found if _fits(found) else None", "return found", f"{RECORDS} -k as_deep_as_we_write"),
    Mutant("a list that can't be read hides the others", "ledger/verification/registers.py", "    except UNREADABLE as error:\n", "    except ZeroDivisionError as error:\n", f"{RECORDS} -k hides_no_other"),
    Mutant("an act that says no state ends the list of rules", "ledger/four_eyes/verification.py", "    return act.after if isinstance(act.after, dict) else {}\n", "    return act.after\n", f"{RECORDS} -k say_no_state"),
    Mutant("an act that says no state ends the list of releases", "runs/verification/releases.py", " for act in about if isinstance(act.after, dict)}", " for act in about}", f"{RECORDS} -k say_no_state"),
    Mutant("a proposed change that nobody can read takes the list away", "approvals/changes/listed.py", "    if not row.is_genuine:\n        return \"A row that is not genuine\"\n", "", "tests/approvals/test_rule_changes_forged.py -k takes_no_page_away"),
    Mutant("a damaged delivery takes the log away", "approvals/outbox/models.py", " if _is_try(each)] if isinstance(read, list) else []", " if _is_try(each)]", f"{RECORDS} -k take_no_list_away"),
    Mutant("a forged decision is told as a fact", "approvals/brief.py", "return self.decision if self.is_genuine is False else None", "return None", f"{DECIDED} -k decided_by_nobody_whatever"),
    Mutant("over HTTP a forged decision is a fact", "approvals/api/present.py", "is_genuine=ours[decision.pk]", "is_genuine=True", f"{DECIDED} -k decided_by_nobody_whatever"),
    Mutant("a forged decision names who decided", "approvals/services.py", "zip(closing, genuine(closing), strict=True) if is_ours is not False]", "zip(closing, genuine(closing), strict=True)]", f"{DECIDED} -k decided_by_nobody_whatever"),
    Mutant("a forged decision answers everybody with an error", "approvals/services.py", "    must_be_undecided(approval)\n", "", f"{DECIDED} -k refused_in_words"),
    Mutant("a forged decision answers whoever changes it with an error", AMEND, "    must_be_undecided(approval)\n", "", f"{DECIDED} -k refused_in_words"),
    Mutant("a forged word is somebody's", "approvals/queues/standing.py", "is_ours=has_code(row_of(Decision, seat[-1]))", "is_ours=True", f"{DECIDED} -k forged_row_is_told_so"),
    Mutant("a state that there is not takes the lists away", "approvals/votes/shown.py", ".get(one.state, ENDED)", ".get(ApprovalState(one.state), ENDED)", f"{DECIDED} -k could_have_put"),
    Mutant("a plan without a tool takes the lists away", "runs/engine/gate/proof.py", 'str(plan.get("tool", ""))', 'str(plan["tool"])', f"{DECIDED} -k could_have_put"),
    Mutant("to decide what can't be hashed is an error", "approvals/services.py", "    except (ValueError, RecursionError):\n        return False\n", "    except ZeroDivisionError:\n        return False\n", f"{DECIDED} -k decided_by_nobody"),
    Mutant("a forged deputy who is ended is ours", "approvals/queues/deputies.py", "    if was_ours:", "    if True:", f"{DECIDED} -k forged_deputy"),
    Mutant("a forged absence that is ended is ours", "approvals/deadlines/away.py", "    if was_ours:", "    if True:", f"{DECIDED} -k forged_absence"),
    Mutant("an act before the first event is from before codes", "approvals/genuine.py", "0 < row.seq <= acts", "row.seq <= acts", f"{GENUINE} -k names_no_event"),
    Mutant("a decision before the first event is from before codes", "approvals/genuine.py", "0 < row.seq < events", "row.seq < events", f"{GENUINE} -k names_no_event"),
    Mutant("an override before the first event needs no code", "ledger/verification/checks.py", "not 0 < row.seq < self.journal.coded_after", "row.seq >= self.journal.coded_after", f"{GENUINE} -k names_no_event"),
    Mutant("a record before the first is looked at by nobody", "ledger/verification/registers.py", "_LOWEST = -(2**63)", "_LOWEST = 1", "tests/ledger/test_registers.py -k wherever_no_function"),
    Mutant("a record before the first is the first", "ledger/verification/registers.py", "        if n < 1:\n", "        if False:\n", "tests/ledger/test_registers.py -k wherever_no_function"),
    Mutant("a pool is what an act without a place says", "runs/verification/pools.py", "run_id__isnull=True, n__gt=0, ", "run_id__isnull=True, ", "tests/runs/test_pool_acts.py -k without_a_place"),
    Mutant("an end that nobody can read takes all lists away", "ledger/api/present.py", "{event.run_id: payload_shown(event) for", "{event.run_id: payload_of(event) for", "tests/console/test_odd_rows.py -k an_end_that"),
    Mutant("a stop that nobody can read takes all lists away", "runs/api/present.py", "import masked, payload_at, payload_shown\n", "import masked, payload_at, payload_of as payload_shown\n", "tests/console/test_odd_rows.py -k a_stop_that"),
    Mutant("what is no number is read", "ledger/codec.py", "parse_float=_finite, parse_constant=_no_number", "", "tests/console/test_odd_rows.py -k nobody_can_read"),
    Mutant("the list of what to settle tells everybody what the other side said", "runs/queries/run_list.py", "    told = [reading.shown(wait, is_read=wait.run_id in readable) for wait in shown]\n", "    told = list(shown)\n", "tests/approvals/test_payloads.py -k reads_what_is_asked"),
    Mutant("each forged event far ahead takes more memory", "ledger/verification/runs.py", "        if 0 <= missing <= left:\n", "        if 0 <= missing:\n", "tests/runs/test_damage.py -k far_ahead"),
    Mutant("a clock that was set back belies a run", "ledger/verification/runs.py", "(own + SLACK if following < own else following)", "following", "tests/runs/test_verification.py -k set_back"),
    Mutant("runs that were not looked at are counted as none", "runs/queries/run_list.py", "Numbers(Counter(rows), is_cut or found.following is not None)", "Numbers(Counter(rows))", "tests/console/test_attributes.py -k counted_by_no_tab"),
    Mutant("an agent's few runs are not asked for the words", "runs/search.py", "        f\"SELECT run_id FROM {name} AS few WHERE {has}\",", "        f\"SELECT run_id FROM {name} AS few WHERE false AND {has}\",", "tests/console/test_lists.py -k a_word_that_many_have"),
    Mutant("a search ends at the newest that have the word, whoever's", "runs/search.py", "most = MOST if who.sees_all and not fit else", "most = MOST if who.sees_all else", "tests/console/test_lists.py -k further_than_the_newest"),
    Mutant("a search that was cut off passes for complete where few of what it looked at fit", "runs/search.py", "Looked(runs, is_cut or len(runs) >= MOST)", "Looked(runs, len(runs) >= MOST)", "tests/console/test_lists.py -k was_cut_off"),
    Mutant("the longest word is taken for the rarest", "runs/search.py", "ORDER BY is_cut, entries, word LIMIT 1", "ORDER BY word LIMIT 1", "tests/console/test_lists.py -k the_rarer_one"),
    Mutant("a search of an agent with few runs passes for cut off", "runs/search.py", "f\"({cut} AND {_among(look, wanted, fit)})\" if fit else cut", "f\"({cut} OR {_among(look, wanted, fit)})\" if fit else cut", "tests/console/test_lists.py -k was_cut_off"),
    Mutant("an inbox that was searched says it is all", "approvals/inbox.py", "self.total > COUNT_TO or self.is_cut", "self.total > COUNT_TO", "tests/console/test_inbox.py -k cut_off"),
    Mutant("what is nearly JSON takes a conversation away", "runs/story/transcript.py", "                data = read_json(content)\n", "                data = __import__('json').loads(content)\n", "tests/console/test_story.py -k nearly_json"),
    Mutant("what stands under no run's id is looked at by nobody", "ledger/verification/runs.py", '">=" if after is None else ">"', '">"', "tests/runs/test_verified_acts.py -k no_runs"),
]  # fmt: skip
