"""Seeded bugs in allowing the same again. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

ACTS, USING, ROWS = "approvals/granting/acts.py", "approvals/granting/using.py", "approvals/granting/rows.py"
SAME, TERMS, BOUNDS = "runs/engine/gate/same.py", "approvals/grants/terms.py", "approvals/granting/bounds.py"
PROOF = "approvals/granting/verification.py"
STORIES, FORGED = "tests/approvals/test_granting.py", "tests/approvals/test_granting_forged.py"
API, BESIDE = "tests/api/test_grants.py", "tests/approvals/test_granting_beside.py"
MINUS = "tests/approvals/test_minus_zero.py"
BACK, USED = "tests/approvals/test_granting_back.py", "approvals/sql/0137_taken_back.sql"

GRANTING = [
    Mutant("a row that nobody can read has no number", ROWS, "row_of(StandingGrant, found[\"grant\"], found[\"readable\"])", "row_of(StandingGrant, found[\"grant\"])", f"{FORGED} -k its_place"),
    Mutant("the rule may have changed", SAME, '"queue", "rule", "policy")', '"queue", "policy")', f"{STORIES} -k 'is_not_the_same_is_asked and rule'"),
    Mutant("what it is called may be anything", SAME, '("tool", "title", "effect",', '("tool", "effect",', f"{STORIES} -k 'is_not_the_same_is_asked and title'"),
    Mutant("the named fields may differ", SAME, '{name: plan["arguments"][name] for name in fields}', "{}", f"{STORIES} -k 'is_not_the_same_is_asked and name'"),
    Mutant("without named fields anything is the same", SAME, "        return sorted(arguments)\n", "        return []\n", f"{STORIES} -k without_named_fields"),
    Mutant("each version is another agent", SAME, '.partition("@")[0]', '', f"{STORIES} -k next_version"),
    Mutant("a yes without a tool is allowed again", SAME, 'plan.get("tool") in (None, "", NO_TOOL)', 'plan.get("tool") in (None, "")', f"{STORIES} -k 'can_not_be_allowed_again and tool'"),
    Mutant("what several decide is allowed by one", TERMS, "    if is_staged(plan):\n", "    if False:\n", f"{STORIES} -k 'can_not_be_allowed_again and stages'"),
    Mutant("it may be allowed anywhere", ACTS, "    if bounds is None:\n", "    if False:\n", f"{STORIES} -k 'can_not_be_allowed_again and nowhere'"),
    Mutant("it is for as many as one likes", ACTS, "    if again.times > bounds.times:\n", "    if False:\n", f"{STORIES} -k further_than_it_may"),
    Mutant("it is for as long as one likes", ACTS, "if not facts.now < again.until <= latest:", "if not facts.now < again.until:", f"{STORIES} -k further_than_it_may"),
    Mutant("it is of as much as one likes", ACTS, "if bounds.most is not None and sum_.value > bounds.most:", "if False:", f"{STORIES} -k further_than_it_may"),
    Mutant("many small ones make a large one", ACTS, "    if isinstance(no, No):\n        raise wrong(\"again.sum\", f\"is more", "    if False:\n        raise wrong(\"again.sum\", f\"is more", f"{STORIES} -k approve_at_once"),
    Mutant("a deputy allows it, or answers by it, in another's place", "approvals/policy.py", "judge(replace(facts, deputyships=(), also=()), approves=True)", "judge(facts, approves=True)", f"{BESIDE} -k in_anybodys_place"),
    Mutant("a grant answers in another's place", USING, "    if isinstance(may, No):\n", "    if False:\n", f"{BESIDE} -k in_anybodys_place"),
    Mutant("who gave it has to be called as then", PROOF, "        if (decided.role, decided.verdict) != (grant.role, \"approved\") or decided.n:\n", "        if (decided.by, decided.role, decided.verdict) != (grant.by, grant.role, \"approved\") or decided.n:\n", f"{BESIDE} -k given_with_a_key"),
    Mutant("a sum is forgotten", ACTS, "        if asked.amount is not None:\n            raise", "        if False:\n            raise", f"{STORIES} -k further_than_it_may"),
    Mutant("what is taken back goes out", ACTS, "        cursor.execute(_LAPSE, [found.now, own, found.now])\n        unused = sum(is_unused for (is_unused,) in cursor.fetchall())\n", "        unused = 0\n", f"{STORIES} -k taken_back_it"),
    Mutant("anybody takes it back", ACTS, "    return as_admin(by, \"take back a standing grant of a queue that they don't decide in\")\n", '    return replace(by, role="admin")\n', f"{STORIES} -k who_may_take_it_back"),
    Mutant("it is taken back twice", ACTS, "    elif end.is_genuine:\n", "    elif False:\n", f"{STORIES} -k taken_back_it"),
    Mutant("what it was given for is on no act's record", ACTS, '        "standing_grant", by=by, subject', '        "", by=by, subject', f"{STORIES} -k as_often_as"),
    Mutant("nobody looks whether it was taken back", ROWS, "        if self.end is not None:\n", "        if False:\n", f"{FORGED} -k whatever_says"),
    Mutant("it is never over in time", ROWS, "if self.now >= self.row.until:", "if False:", f"{STORIES} -k over_in_time"),
    Mutant("it is used once more than it says", ROWS, "if len(self.uses) >= self.row.count", "if len(self.uses) > self.row.count", f"{STORIES} -k two_sweepers"),
    Mutant("two use it at once", ROWS, '        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK, grant_id % 2**31])\n', "", f"{STORIES} -k two_sweepers"),
    Mutant("what was spent is forgotten", ROWS, "left = self.row.most - self.spent", "left = self.row.most", f"{STORIES} -k sum_of_all"),
    Mutant("less than nothing makes room", ROWS, "sum((abs(use.amount) for use", "sum((use.amount for use", f"{STORIES} -k paid_back"),
    Mutant("a forged use counts", ROWS, "self.row.is_genuine and all(use.is_genuine for use in self.uses)", "self.row.is_genuine", f"{FORGED} -k forged_use"),
    Mutant("a forged grant counts", ROWS, "return self.row.is_genuine and all(", "return all(", f"{FORGED} -k forged_grant"),
    Mutant("what the column says is the same", USING, "    if not row.is_about(approval.queue, asked):\n", "    if row.same != approval.same:\n", f"{FORGED} -k made_to_look"),
    Mutant("what was tried before is answered unseen", USING, "    if wait.n or wait.attempt or approval.revision != 1 or is_told_of:\n", "    if False:\n", f"{STORIES} -k tried_before"),
    Mutant("the yes is nobody's in particular", USING, "role=row.role, auth=AUTH, person=row.person)", "role=row.role, auth=AUTH)", f"{STORIES} -k reaches_no_further"),
    Mutant("a use leaves no row", USING, "    use.seal()\n    use.save(force_insert=True)\n", "    use.seal()\n", f"{STORIES} -k two_sweepers"),
    Mutant("one question's trouble stops all", USING, "        except (LeftToPeople, DurableAgentsError) as no:\n", "        except LeftToPeople as no:\n            raise\n        except DurableAgentsError as no:\n", f"{STORIES} -k sum_of_all"),
    Mutant("one person sets how far it goes where two have to", BOUNDS, '@second("queues", needs=PERMISSION)\n', "", f"{STORIES} -k two_people"),
    Mutant("a use that nobody gave is not found", PROOF, '                yield f"{use} answered approval {id}, and no event says so"\n', "                pass\n", f"{FORGED} -k forged_use"),
    Mutant("a grant that no decision gives is not found", PROOF, '                yield f"{what}: no decision gives it"\n                continue\n', "                continue\n", f"{FORGED} -k forged_grant"),
    Mutant("who decides elsewhere is shown it", "approvals/granting/listed.py", "if not found or (seen is not None and found[0].row.queue not in seen and found[0].row.person != user.pk):", "if not found:", API),
    Mutant("people are told of what is answered at once", "approvals/sql/0135_standing_grants.sql", "interval '5 seconds' END", "interval '0 seconds' END", f"{STORIES} -k nobody_is_told"),
    Mutant("a forged queue keeps everybody from taking it back", ACTS, "        role, not_genuine = None, forged\n", "        raise\n", f"{FORGED} -k under_a_forged_queue"),
    Mutant("under a forged queue one is told of administrators", ACTS, "        raise not_genuine or no from None\n", "        raise\n", f"{FORGED} -k under_a_forged_queue"),
    Mutant("what was taken back goes out under another's yes", USED, "    IF FOUND THEN\n", "    IF false THEN\n", f"{BACK} -k while_others_are_asked"),
    Mutant("what people said anew is not seen beside what was taken back", USED, "z.opened_at > a.opened_at", "z.opened_at < a.opened_at", f"{BACK} -k while_others_are_asked"),
    Mutant("somebody else is asked for what was taken back", "runs/engine/steps/gates.py", "        await _put_again(call, taken, error.told.get(\"grant\"))\n", "        await ask_anew(call)\n", f"{BACK} -k and_no_other"),
    Mutant("a yes that people gave anew is called a fault", PROOF, "            if [id for seq, id in told if seq < sent][-1:] == [decided.approval_id]:\n", "            if told:\n", f"{BACK} -k no_fault"),
    Mutant("a yes of which its call went out counts as unused", ROWS, "AND x.consumed_at > w.resolved_at)", "AND false)", f"{BACK} -k not_counted"),
    Mutant("used up, nothing of it is taken back", "approvals/granting/listed.py", "may_end=may and (shown.is_active or is_open)", "may_end=may and shown.is_active", f"{BACK} -k lies_unused"),
    Mutant("what went out is offered to be taken back", ROWS, "AND NOT ({USED}) AND r.state NOT IN ('completed', 'cancelled')", "", f"{BACK} -k lies_unused"),
    Mutant("a number that is too large breaks the page", "approvals/policy.py", "        number = f\"{self.value:,f}\"\n", "        number = f\"{self.value.quantize(Decimal('0.01')):,f}\"\n", "tests/approvals/test_policy.py -k any_size"),
    Mutant("the sum of a forged grant is told", "approvals/granting/listed.py", "if row.most is None or not self.held.is_genuine:", "if row.most is None:", f"{FORGED} -k keep_no_page"),
    Mutant("a forged end keeps what was not used", ACTS, "    elif not end.is_genuine and not found.has_unused:\n", "    elif not end.is_genuine:\n", f"{FORGED} -k under_a_forged_end"),
    Mutant("a lapse under a forged end is called a fault", PROOF, "at = _lapsed_at(use.grant) if end is None else end.at", "at = None if end is None else end.at", f"{FORGED} -k under_a_forged_end"),
    Mutant("many grants of the same make more calls", ACTS, "    if again.times > times:\n", "    if False:\n", f"{BESIDE} -k go_no_further"),
    Mutant("many grants of the same make a larger sum", ACTS, "sum_.value + open_ > bounds.most:", "sum_.value > bounds.most:", f"{BESIDE} -k go_no_further"),
    Mutant("many grants of the same go beyond a limit", ACTS, "asked=About(Sum(sum_.value + open_, sum_.currency))", "asked=About(Sum(sum_.value, sum_.currency))", f"{BESIDE} -k no_more_than_one_may"),
    Mutant("two of the same are given at once", ROWS, '        cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_LOCK_OF_SAME, same])\n', "", f"{BESIDE} -k counted_together"),
    Mutant("what was rejected before is answered", USING, "    if _was_refused(approval, asked):\n", "    if False:\n", f"{BESIDE} -k asked_between"),
    Mutant("a zero with a sign is sealed as the database never gives it back", "ledger/codes.py", 'return "0.000000" if text == "-0.000000" else text', "return text", f"{MINUS} -k database_keeps"),
    Mutant("a zero with a sign is kept where it comes in", "ledger/codes.py", "return value if value else value.copy_abs()", "return value", MINUS),
    Mutant("one widens it and gives it", ACTS, "    if own.exists() or (", "    if (", f"{BESIDE} -k just_allowed"),
]  # fmt: skip
