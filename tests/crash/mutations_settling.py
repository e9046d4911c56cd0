"""Bugs to seed in settling unknown outcomes by two people, in having the other side asked, and in what helps with it."""

from __future__ import annotations

from tests.crash.mutant import Mutant

AGREEING, PROPOSALS, UPSTREAM = (
    "runs/services/settling/agreeing.py",
    "runs/services/settling/proposals.py",
    "runs/services/settling/upstream.py",
)
RECONCILING, VERIFIED, KNOWN = (
    "runs/services/reconciling.py",
    "ledger/four_eyes/settling.py",
    "ledger/four_eyes/known.py",
)
DOUBT, LINKS, SIMILAR = (
    "runs/engine/steps/doubt.py",
    "runs/queries/doubts/links.py",
    "runs/queries/doubts/similar.py",
)
NOTICES = "approvals/notices/recipients.py"
TWO, SEEN = "tests/runs/test_settling.py", "tests/runs/test_settling_verified.py"
ASKED, HELP, TOLD = (
    "tests/runs/test_asking_upstream.py",
    "tests/runs/test_lookups.py",
    "tests/approvals/test_outcome_notices.py",
)

SETTLING = [
    Mutant("one settles it alone", AGREEING, "    if not is_guarded(OUTCOMES):\n", "    if True:\n", f"{TWO} -k one_word_changes"),
    Mutant("the first one is the second one too", AGREEING, "        if before.person == person:\n", "        if before.person == -1:\n", f"{TWO} -k nobody_is_two"),
    Mutant("two words that differ settle it", AGREEING, "    if before is not None and before.is_open and before.says == said:\n", "    if before is not None and before.is_open:\n", f"{TWO} -k takes_the_place"),
    Mutant("a word stands whatever was told since", AGREEING, "    if before is not None and before.is_open and before.says == said:\n", "    if before is not None and before.says == said:\n", f"{TWO} -k told_of_the_call_since"),
    Mutant("a key is a person", AGREEING, '    if by.kind != "user" or by.person is None:\n', "    if by.person is None:\n", f"{TWO} -k nobody_is_two"),
    Mutant("whoever has lost the role speaks on", AGREEING, "    if not holds(account_of(by), OPERATOR):\n", "    if False:\n", f"{TWO} -k lost_the_role_says"),
    Mutant("the first one's lost role counts", AGREEING, "    return holds(account_of(Actor(kind, name, role=before.role, person=before.person)), OPERATOR)", "    return True", f"{TWO} -k is_no_first"),
    Mutant("the rule is read while it is made", AGREEING, "    hold(is_alone=False)\n", "", f"{TWO} -k crosses_the_rule"),
    Mutant("a shell is held up", AGREEING, "    if not act.by.is_person:\n        return None\n", "", f"{TWO} -k shell"),
    Mutant("a receipt of what did not happen has to be the same", AGREEING, 'receipt if verdict == "happened" else None}', "receipt}", f"{TWO} -k sent_again_once"),
    Mutant("anybody takes a word back", AGREEING, '    if found.person != by.person or by.kind != "user":\n', "    if False:\n", f"{TWO} -k taken_back_by"),
    Mutant("what was taken back stands", PROPOSALS, "            heard.said = None\n", "            pass\n", f"{TWO} -k taken_back_by"),
    Mutant("a word of an earlier question counts", PROPOSALS, " if event.question == question:", ":", f"{TWO} -k asked_anew"),
    Mutant("a forged word is read", PROPOSALS, "        return checked(run_id, row)[1]\n", '        from ledger.codec import unpack\n        from ledger.events import decode\n        return decode(bytes(row[7]), unpack(row[8]))\n', f"{SEEN} -k forged_first"),
    Mutant("to fail a run takes two", RECONCILING, '    if verdict != "fail":\n        match', "    if True:\n        match", f"{TWO} -k stops_is_never"),
    Mutant("the second word does not say with whom it agrees", RECONCILING, '                payload |= {"proposal": first.n, "person": by.person}\n', "                pass\n", f"{TWO} -k one_word_changes"),
    Mutant("a pool of one is enough for two", KNOWN, '    return sorted(needs | {needed for of, needed in BESIDES.items() if of == family})', "    return sorted(needs)", f"{TWO} -k no_two_could"),
    Mutant("nobody finds what one settled alone", VERIFIED, "            elif one.is_alone and _is_for_two(one.at):\n", "            elif False:\n", f"{SEEN} -k settled_alone"),
    Mutant("nobody finds an agreement with oneself", VERIFIED, '        if first.person == told.get("person"):\n', "        if False:\n", f"{SEEN} -k agreement_that_is_none"),
    Mutant("nobody finds another receipt", VERIFIED, '        if event.verdict == "happened" and before.get("receipt") != told.get("receipt"):\n', "        if False:\n", f"{SEEN} -k agreement_that_is_none"),
    Mutant("nobody finds another question", VERIFIED, "        if (first.verdict, first.question) != (event.verdict, event.n):\n", "        if first.verdict != event.verdict:\n", f"{SEEN} -k agreement_that_is_none"),
    Mutant("nobody finds news in between", VERIFIED, "        if self.news.get(event.slot, 0) > seq:\n", "        if False:\n", f"{SEEN} -k taken_back_or_overtaken"),
    Mutant("nobody finds an agreement with what was taken back", VERIFIED, "        if place in self.taken_back:\n", "        if False:\n", f"{SEEN} -k taken_back_or_overtaken"),
    Mutant("who said it is told that it waits", NOTICES, "    if case.said is not None and case.said.person == user.pk:\n", "    if False:\n", f"{TOLD} -k who_says_what"),
    Mutant("what stands no more is told", NOTICES, '        if self.notice.kind == "outcome_said" and not self._is_said:\n', "        if False:\n", f"{TOLD} -k told_once"),
    Mutant("why tells of a second person where one settles it", "runs/queries/why/seen.py", " and agreeing.is_for_two() and", " and", f"{TWO} -k asks_why"),
    Mutant("why tells of a word that counts no more", "runs/queries/why/seen.py", " and agreeing.counts(found)", "", f"{TWO} -k asks_why"),
    Mutant("the first one may be the second one, by what why says", "runs/queries/why/answer.py", "        return replace(OPERATORS, but=seen.said.by)\n", "        return OPERATORS\n", f"{TWO} -k asks_why"),
    Mutant("why names the queues that a row tells of", "runs/queries/why/words.py", "' or '.join(put_to(w))", "' or '.join([*put_to(w), *(w.also or ())])", "tests/approvals/test_deadlines_beside.py -k gives_nobody"),
    Mutant("nobody asks the other side", DOUBT, "    if call.past.asked is not None:\n", "    if False:\n", f"{ASKED} -k settles_nothing"),
    Mutant("what the other side says is not put down", DOUBT, "        await call.visit.commit(Batch([told(call.slot, call.attempt, call.past.asked, answer)]))\n", "        pass\n", f"{ASKED} -k settles_nothing"),
    Mutant("of a run that is to end nobody is asked", DOUBT, "        if now.asked is not None:\n", "        if False:\n", f"{ASKED} -k to_end_it_is_asked"),
    Mutant("it is asked twice at once", UPSTREAM, "    if known.is_asked:\n", "    if False:\n", f"{ASKED} -k once_it_has_answered"),
    Mutant("it is asked where there is no hook", UPSTREAM, "    if not has_hook(act.run, wait):\n", "    if False:\n", f"{ASKED} -k nobody_can_be_asked"),
    Mutant("no worker hears that it is to be asked", UPSTREAM, "    wake(act.run, now=act.now)\n", "", f"{ASKED} -k settles_nothing"),
    Mutant("who has it asked had a hand in the run", "runs/services/authority.py", '"delegate_end", "upstream_ask")', '"delegate_end")', f"{ASKED} -k put_nothing"),
    Mutant("a link leads past the name that it shows", LINKS, ' or "@" in parts.netloc', "", f"{HELP} -k leads_elsewhere"),
    Mutant("a link runs a script", LINKS, '    if parts.scheme not in ("http", "https") or', "    if", f"{HELP} -k leads_elsewhere"),
    Mutant("what others are about is everybody's", SIMILAR, 'about if run_id in readable else ""', "about", f"{HELP} -k whoever_sees"),
    Mutant("others that one doesn't see are listed", SIMILAR, '    sees, values = seen.is_seen("r", viewer())\n', '    sees, values = "true", []\n', f"{HELP} -k whoever_sees"),
    Mutant("other agents' calls are like it", SIMILAR, "WHERE r.agent = %s AND", "WHERE (r.agent = %s OR true) AND", f"{HELP} -k people_said"),
    Mutant("whoever agrees need not say with which call's word", AGREEING, "    if wait_id is None:\n", "    if False:\n", f"{TWO} -k which_word"),
    Mutant("whoever agrees need not have read it", AGREEING, "    must_read(run_id)\n", "", "tests/api/test_settling.py -k may_not_read"),
    Mutant("a hook's exit is its worker's", DOUBT, "asyncio.wait_for(without_exit(tool.reconcile(args, call)), tool.timeout)", "asyncio.wait_for(tool.reconcile(args, call), tool.timeout)", "tests/runs/test_asking_upstream.py -k what_it_says_settles_nothing"),
    Mutant("a hook's own end is the run's", DOUBT, "        if isinstance(error, asyncio.CancelledError) and is_being_cancelled():\n            raise\n", "        if isinstance(error, asyncio.CancelledError):\n            raise\n", f"{ASKED} -k settles_nothing"),
    Mutant("what was wanted before a failure is wanted for ever", DOUBT, "    await call.visit.commit(Batch([wait.opened()], wait=wait))\n    await _park(call, wait)\n\n\nasync def _wait_on", "    await call.visit.commit(Batch([wait.opened()], wait=wait))\n    call.visit.park(wait)\n\n\nasync def _wait_on", f"{ASKED} -k before_a_failure"),
    Mutant("a cancel forgets what was wanted under a pause", "runs/services/command.py", "is not None and s.now.asked is None for s in in_doubt", "is not None for s in in_doubt", f"{ASKED} -k under_a_pause_is_asked_when_the_run_is_cancelled"),
    Mutant("no answer is news", PROPOSALS, ' and event.answer != "nothing":', ":", f"{ASKED} -k tells_nothing"),
    Mutant("what the other side tells is no news", PROPOSALS, "                found[wait].learn(row[0])\n", "                pass\n", f"{ASKED} -k tells_nothing"),
    Mutant("a link may take as long as it likes", LINKS, 'read(in_time(f"link of {tool.name}", partial(tool.link, args), SECONDS))', "read(tool.link(args))", f"{HELP} -k author_says"),
    Mutant("a host is whatever stands there", LINKS, ' or not _is_plain(host):', ":", f"{HELP} -k leads_elsewhere"),
    Mutant("caps are lowered for many", "runs/services/budgets/raising.py", "if name in caps and value > caps[name]}", "if name in caps}", "tests/runs/test_bulk_more.py -k never_lowered"),
    Mutant("a key gives many what it may not give one", "runs/services/bulk/acts.py", "    if body.budget is not None and most is not None:\n", "    if False:\n", "tests/runs/test_bulk_more.py -k no_more_than_one"),
    Mutant("a first word for many counts as settled", "runs/services/bulk/working.py", "    if isinstance(came, Proposal):\n", "    if False:\n", "tests/runs/test_bulk_more.py -k two_acts"),
]  # fmt: skip
