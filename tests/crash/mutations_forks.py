"""Seeded bugs in forks, what-ifs and new starts. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import LIGHT, Mutant

EVIDENCE, FENCE, IMAGINED, CALLS = (
    "runs/engine/forks/evidence.py", "runs/engine/steps/forks/fence.py", "runs/engine/steps/forks/what_if.py",
    "runs/engine/steps/forks/calls.py",
)  # fmt: skip
POINTS, AGAIN, CHECK = (
    "runs/services/forks/points.py", "runs/services/forks/starting_again.py", "runs/verification/forks.py",
)  # fmt: skip
HIT, SINCE, BESIDE, SECRETS = (
    "tests/runs/test_forks_attacked.py", "tests/runs/test_forks_undone.py", "tests/runs/test_forks_beside.py",
    "tests/testing/test_secrets_of_others.py",
)  # fmt: skip
BACK, KIN = "runs/journal/reader.py", "runs/queries/recordings/kin.py"
KIN_OF, WORK = "runs/services/lines/beside.py", "tests/runs/test_one_work.py"
MODEL = "tests/runs/test_model.py"
ALONE, DOUBTS = "tests/runs/test_start_again_in_doubt.py", "runs/services/forks/doubts.py"
ENGINE, IF, ROWS, NEW = (
    "tests/engine/test_forks.py", "tests/engine/test_what_if.py", "tests/runs/test_forks.py", "tests/runs/test_start_again.py",
)  # fmt: skip

FORKING = [
    Mutant("what a run at work will do yet is asked about by nobody", EVIDENCE, "return self.told.fences_all or any(", "return any(", LIGHT),
    Mutant("whoever has the last room gives it back each time another comes to the cap", "runs/engine/visit.py", "self.meter.has_room_for(intent)):", "False):", ENGINE),
    Mutant("a no is a yes", FENCE, "            raise Rejected(ASKED, reason, said.by, \"rejected\")", "            return None", LIGHT),
    Mutant("another run is started again without a word", "runs/engine/steps/children.py", "        await fence.passed(visit, _asked(slot, record, agent, wanted, asked, requested_hash))", "        pass", LIGHT),
    Mutant("a call goes on to its gate though something stands for it", CALLS, "    return await fence.passed(call.visit, asked) is not None", "    return await fence.passed(call.visit, asked) is ...", LIGHT),
    Mutant("the origin hears nothing of its fork", "runs/services/forks/forking.py", "    act.done(made_of_it, after=", "    act.done(after=", LIGHT),
    Mutant("a fork does again what its origin did, and asks nobody", CALLS, "    return await fence.passed(call.visit, asked) is not None", "    return False", f"{ENGINE} -k asks_before"),
    Mutant("another amount is not asked about", EVIDENCE, "any(x.tool == tool and x.counts_as != DID_NOT for x in self.effects)", "any(x.tool == tool and x.has_result and False for x in self.effects)", f"{ENGINE} -k another_amount"),
    Mutant("one word lets every call of a tool through", FENCE, "            if bound == binds and n in attempt.answers:", "            if n in attempt.answers:", f"{ENGINE} -k another_question"),
    Mutant("one effect stands for two calls", EVIDENCE, "if x.has_result and x.place not in taken and x.is_of(", "if x.has_result and x.is_of(", f"{ENGINE} -k stands_for_one_call"),
    Mutant("two branches are given one effect", FENCE, "    fork.taken.add(same.place)", "    pass", f"{ENGINE} -k two_branches"),
    Mutant("a deadline that passes is a yes", FENCE, "        raise Expired(ASKED,", "        return None  # type: ignore[misc]\n        raise Expired(ASKED,", f"{ENGINE} -k in_time"),
    Mutant("what was found done after a try that had not left counts as not done", EVIDENCE, "is_told_of = (attempt.result, attempt.accepted, attempt.reconciled, attempt.unknown) != (None, None, None, None)", "is_told_of = (attempt.result, attempt.accepted) != (None, None)", f"{ENGINE} -k says_nothing_of"),
    Mutant("a call in doubt counts as not done", EVIDENCE, "    if not isinstance(intent, e.ToolInvoked) or", "    if attempt.outcome is None or not isinstance(intent, e.ToolInvoked) or", f"{ENGINE} -k in_doubt"),
    Mutant("a run that was started is no effect", EVIDENCE, "        yield _child(run, name, number, intent, attempt)", "        pass", f"{ENGINE} -k was_started"),
    Mutant("a fork forgets whose it is at its first checkpoint", "runs/journal/reader.py", "    told = [checked(run_id, row)[1] for row in first if row[3] == RunForked.KIND]\n", "    told = []\n", f"{ROWS} -k both_runs"),
    Mutant("of a run at work only what it did so far is asked about", POINTS, "    is_open = run.state not in ENDED\n", "    is_open = False\n", f"{ROWS} -k at_work"),
    Mutant("a fork of a fork forgets the first origin", POINTS, "    return [x for x in forked.effects if x.place not in passed]", "    return []", f"{ROWS} -k carries"),
    Mutant("an intent without a word verifies", CHECK, "            self.unasked.append((line.seq, event.KIND))", "            pass", f"{ROWS} -k without_a_word"),
    Mutant("a what-if calls its tools", CALLS, "    if what_if.of(call.visit) is None:", "    if True:", f"{IF} -k same_end"),
    Mutant("nothing has the last word before a what-if sends", EVIDENCE, "    if fork is None or not fork.is_what_if:\n        return None", "    if True:\n        return None", f"{IF} -k comes_past"),
    Mutant("a what-if makes up what is not on record", IMAGINED, "    elif given in fork.answers and", "    elif given in fork.answers or", f"{IF} -k a_person_may"),
    Mutant("a what-if takes a hook's no for the other side's", EVIDENCE, "    if last is None:\n        return {}", "    if last is None or True:\n        return {}", f"{IF} -k by_the_same_error"),
    Mutant("a what-if goes on as a real run", "runs/engine/replay.py", "    if visit.fork is None or not", "    if True or not", f"{IF} -k no_other_run"),
    Mutant("a fork's heir is asked about by nobody", "runs/engine/replay.py", "    if what_if.of(visit) is None:\n        problem", "    if what_if.of(visit) is None:\n        return outcome\n        problem", f"{HIT} -k does_not_go_on"),
    Mutant("what the origin undid stands for this run's undo", "runs/engine/steps/forks/fence.py", "    if fork is None or visit.node == UNDO_NODE:\n", "    if fork is None:\n", f"{HIT} -k an_undo_is_made"),
    Mutant("an heir starts again from its first input", AGAIN, "    node, state = _beginning(act.run, agent, found)\n", "    node, state = \"\", {}\n", f"{HIT} -k went_on_from"),
    Mutant("two forks know nothing of each other", POINTS, "is_open or bool(beside.others(run)) or", "is_open or", f"{HIT} -k by_its_origin"),
    Mutant("the origin is retried beside its fork", "runs/services/lifecycle.py", "    _must_be_alone(act)\n    head.deaths = 0", "    head.deaths = 0", f"{HIT} -k by_its_origin"),
    Mutant("a tool by another name passes the fence", "runs/engine/steps/forks/fence.py", " and not fork.is_beyond(tool.name for tool in visit.agent.all_tools())", "", f"{HIT} -k by_another_name"),
    Mutant("a fork whose beginning is lost is an ordinary run", "runs/journal/reader.py", "    if [row[0] for row in first] != list(", "    if False and [row[0] for row in first] != list(", f"{HIT} -k beginning_is_lost"),
    Mutant("a run starts again before its effects are decided", AGAIN, "    if verdict is None or verdict.counts_as not in COUNTS:", "    if verdict is None:\n        return effect\n    if verdict.counts_as not in COUNTS:", f"{NEW} -k nobody_has_decided"),
    Mutant("what only a row tells of is left out", AGAIN, "        if pending is not None and place not in intents:", "        if False:", f"{NEW} -k told_by_its_row"),
    Mutant("a torn record passes for whole", AGAIN, "    is_partial = bool(problems) or", "    is_partial = False or", f"{NEW} -k way_out"),
    Mutant("what was undone stands for a call", EVIDENCE, "_as_it_is_now(effect, back) for effect in found", "effect for effect in found", f"{NEW} -k undone"),
    Mutant("a no is forgotten once another call is given the record", FENCE, "    _must_not_be_refused(asked.record)\n", "", f"{ENGINE} -k a_no_stands"),
    Mutant("a refusal is told otherwise where no origin is known", CALLS, "    if tool.is_pure:\n", "    if call.visit.fork is None or tool.is_pure:\n", f"{ENGINE} -k answered_no_replays"),
    Mutant("what was undone since is offered", FENCE, "    fork.undone.update(await visit.look_up(visit.journal.undone({x.place for x in fork.of(asked.tool)})))\n", "", f"{SINCE} -k since_is_not_offered"),
    Mutant("what is about to be undone is offered", BACK, "    return back is None or back.is_begun or", "    return back is None or", f"{SINCE} -k about_to_be"),
    Mutant("an undo that can't be read is none", BACK, "            by_run[str(run_id)] = None\n", "            pass\n", f"{SINCE} -k can_not_be_read"),
    Mutant("what a person let stand counts as undone", EVIDENCE, "                self.all.discard((event.of_slot, event.of_attempt))\n", "                pass\n", f"{SINCE} -k let_stand"),
    Mutant("a fork begins from what its origin undid", "runs/services/forks/grounds.py", "        run_id, until = UUID(told.origin), told.at_seq\n", "        return\n", f"{SINCE} -k wherever"),
    Mutant("a fork begins from what it was given and another undid", "runs/services/forks/grounds.py", "    held = taken | {", "    held = {", f"{SINCE} -k wherever"),
    Mutant("a paused origin goes on beside its fork", "runs/services/lifecycle.py", "    _must_be_alone(act)\n    if run.state != State.PAUSED:", "    if run.state != State.PAUSED:", f"{BESIDE} -k not_resumed"),
    Mutant("a secret of the version that a run was moved from leaves", KIN, "            found |= {str(told[\"of\"]), str(told[\"to\"])}\n", "            pass\n", f"{SECRETS} -k 'no_file and by_an_earlier_move'"),
    Mutant("a secret of a fork's origin leaves", KIN, "ARRAY[r.forked_from, r.parent,", "ARRAY[r.parent,", f"{SECRETS} -k 'no_file and by_a_fork'"),
    Mutant("a secret of a child's child leaves", KIN, "            UNION ALL SELECT c.id FROM runs_run c WHERE c.parent = r.id) AS n(id)", "            UNION ALL SELECT c.id FROM runs_run c WHERE c.parent = r.id AND r.parent IS NULL) AS n(id)", f"{SECRETS} -k 'no_file and by_a_childs_child'"),
    Mutant("a new start sends what may be on its way", AGAIN, "        return found.attested(now=act.now, is_attested=verdict.sender_is_gone)\n", "        return \"\"\n", f"{ALONE} -k 'on_its_way or lost_host'"),
    Mutant("nothing is attested where a run is started again", AGAIN, "is_attested=verdict.sender_is_gone)", "is_attested=True)", f"{ALONE} -k lost_host"),
    Mutant("what was attested is not on record", AGAIN, "({\"attested\": gone} if gone else {})", "{}", f"{ALONE} -k lost_host"),
    Mutant("one person says before a new start what takes two", AGAIN, "    if is_for_two and (found or", "    if False and (found or", f"{ALONE} -k takes_two"),
    Mutant("one person makes up a result that two gave", AGAIN, "(found or (verdict.counts_as == HAPPENED and is_new))", "found", f"{ALONE} -k repeated_by_one"),
    Mutant("a shell is held up before a new start", DOUBTS, "    if not by.is_person:\n        return False\n", "", f"{ALONE} -k a_shell"),
    Mutant("a run between hides who may still be sending", DOUBTS, "    below = [doubts_of(each, remains) for each in effects]\n", "    below: list[Doubts] = []\n", f"{ALONE} -k a_run_between"),
    Mutant("a run that was started works on beside a new start", DOUBTS, "        for run in self.at_work:\n", "        for run in ():\n", f"{ALONE} -k is_at_work"),
    Mutant("a word at the call gets round its sender", "runs/services/questions.py", "attested_again(run, asked, given, now=now) if \"binds\" in wait.detail else \"\"", "\"\"", f"{ALONE} -k 'way_round or nor_is_a_fork'"),
    Mutant("a no is held up by the sender", "runs/services/forks/consents.py", "    if given.get(\"decision\") != AGAIN:\n        return \"\"\n", "", f"{ALONE} -k nor_is_a_fork"),
    Mutant("a fork's question can't be attested", FENCE, "        schema[\"properties\"][\"sender_is_gone\"] = dict(SENDER_IS_GONE)\n", "        pass\n", f"{ALONE} -k attests_it_too"),
    Mutant("two runs work on one thing", AGAIN, "    if act.run.state not in ENDED:\n        raise", "    if False:\n        raise", f"{NEW} -k in_doubt"),
    Mutant("a fork of a fork is sure of what that one was not told", POINTS, " or (forked is not None and forked.told.fences_all)", "", MODEL),
    Mutant("a fork that ended without doing anything is in the way for ever", KIN_OF, "            x.ended_at IS NULL\n", "            true\n", MODEL),
    Mutant("a new start that is refused has cancelled its run", AGAIN, "@transaction.atomic\ndef start_again", "def start_again", MODEL),
    Mutant("what a person says did not happen is told to forks", EVIDENCE, "    if attempt.reconciled is not None and attempt.reconciled.verdict == DID_NOT:\n        return False", "    if False:\n        return False", MODEL),
    Mutant("a run is forked while it undoes", POINTS, "    if run.is_undoing and run.state not in ENDED:", "    if False:", MODEL),
    Mutant("a fork of a fork is nobody's business", KIN_OF, "            UNION ALL SELECT f.id, false, kin.is_below FROM runs_run AS f\n", "            UNION ALL SELECT f.id, false, kin.is_below FROM (SELECT * FROM runs_run WHERE kin.is_own) AS f\n", f"{WORK} -k of_its_fork"),
    Mutant("a fork hears nothing of what its line did since", KIN_OF, "            UNION ALL SELECT r.forked_from, false, false\n", "", f"{WORK} -k idle_fork_is_not_retried"),
    Mutant("what a fork did by a child was not done", KIN_OF, "            OR EXISTS (SELECT 1 FROM runs_run AS c WHERE c.parent = x.id", "            OR EXISTS (SELECT 1 FROM runs_run AS c WHERE false AND c.parent = x.id", f"{WORK} -k what_a_child_did"),
    Mutant("an heir is another work than what it goes on from", KIN_OF, "            SELECT r.came_from, kin.is_own, kin.is_below\n", "            SELECT NULL::uuid, false, false\n", f"{WORK} -k heir_does_not"),
    Mutant("what undoes stands still beside a fork of its parent", KIN_OF, " or is_undoing else", " else", "tests/runs/test_undo_beside_forks.py"),
    Mutant("a child goes on beside its parent's fork", KIN_OF, "            UNION ALL SELECT r.parent, kin.is_own, kin.is_own\n", "", f"{WORK} -k fork_of_its_parent"),
    Mutant("what was done before a fork was made keeps it from going on", KIN_OF, "coalesce((SELECT created_at FROM fork), '-infinity'::timestamptz)", "'-infinity'::timestamptz", f"{WORK} -k told_of"),
    Mutant("a fork that asks about each call may not go on", KIN_OF, "    return told is not None and told.fences_all\n", "    return False\n", f"{WORK} -k asks_about_each"),
    Mutant("an origin and its fork are set going at once", KIN_OF, "    SELECT pg_advisory_xact_lock(hashtextextended(top.id::text, 53)) FROM top", "    SELECT 1 FROM top", f"{WORK} -k one_is_retried"),
    Mutant("more budget sets an origin going beside its fork", "runs/services/budgets/raising.py", "        if beside.in_the_way(run) is not None:\n", "        if False:\n", f"{WORK} -k more_budget"),
    Mutant("the sweeper asks for ever what is refused", "runs/services/families/wishes.py", "in (None, FAMILY.ref) and beside.in_the_way(run) is None", "in (None, FAMILY.ref)", f"{WORK} -k sweeper"),
    Mutant("a child that got its budget beside a fork stays where it was", "runs/services/families/wishes.py", "in (None, FAMILY.ref) and", "== FAMILY.ref and", f"{WORK} -k got_its_budget"),
]  # fmt: skip
