"""Seeded bugs in policies. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

JUDGING, GATES, SQL = (
    "runs/engine/steps/policies/judging.py", "runs/engine/steps/gates.py",
    "runs/sql/0071_claims_under_halts.sql",
)  # fmt: skip
IN_FORCE, RULES, MEANING, ACTS = (
    "approvals/policies/inforce.py", "approvals/rules/judging.py", "approvals/rules/meaning.py",
    "approvals/policies/acts.py",
)  # fmt: skip
TOLD, ROWS, SAID = (
    "tests/engine/test_policies.py",
    "tests/approvals/test_policies.py",
    "tests/approvals/test_conditions.py",
)

POLICIES = [
    Mutant(
        "of a yes beside which a policy asks others it is said that it expired",
        "runs/engine/amending/history.py",
        '        return f"the call was not made yet, for {self.because}" if self.because else _NOT_UNDER_IT',
        '        return "it expired before the call was made"',
        f"{ROWS} -k has_not_expired",
    ),
    Mutant(
        "every yes is said to have expired where one has",
        "runs/engine/amending/history.py",
        "_EXPIRED if name == self.expired else _NOT_UNDER_IT",
        "_EXPIRED",
        f"{TOLD} -k brings_along_and_one_that_stands",
    ),
    Mutant(
        "an intent is not held to the policies in force",
        SQL,
        "    PERFORM runs_check_policies(p_lines);\n",
        "",
        f"{ROWS} -k no_longer_in_force",
    ),
    Mutant(
        "a repeat is not held to the policies in force",
        "runs/sql/0060_policies.sql",
        "IF line.kind IN ('ToolInvoked', 'ToolRedispatched') THEN",
        "IF line.kind IN ('ToolInvoked') THEN",
        f"{ROWS} -k repeat_is_held",
    ),
    Mutant(
        "a policy's word is not asked for before a call",
        "runs/engine/steps/call.py",
        "            await judging.judge(call)\n            if (hit",
        "            if (hit",
        f"{TOLD} -k puts_the_call_to_its_queue",
    ),
    Mutant(
        "an allow outweighs a deny",
        "runs/engine/policy/judgement.py",
        '("deny", "require", "allow")',
        '("allow", "require", "deny")',
        f"{TOLD} -k strictest",
    ),
    Mutant(
        "what can't be told slips past a rule",
        RULES,
        '        return self.effect != "allow" if said is None else said',
        "        return bool(said)",
        f"{SAID} -k cant_be_told_counts",
    ),
    Mutant(
        "a call that may have happened is repeated under a stricter policy",
        JUDGING,
        "    if judged is None or not _forbids(call, judged):",
        "    if True:",
        f"{TOLD} -k not_repeated",
    ),
    Mutant(
        "one queue's yes stands for another's",
        GATES,
        "        if each.queue not in yes:",
        "        if not yes:",
        f"{TOLD} -k both_asked",
    ),
    Mutant(
        "a policy takes a gate in code away",
        GATES,
        "    if rule is not None and brought is None and _whom(rule) not in {*map(_asked_of, given.values())}:",
        "    if False:",
        f"{TOLD} -k both_asked",
    ),
    Mutant(
        "a no is forgotten under a stricter policy",
        JUDGING,
        "        return  # people are asked, or have said no: that is looked at first\n",
        "        pass\n",
        f"{TOLD} -k rejects_ends_it",
    ),
    Mutant(
        "a refusal is not on record with its policy",
        JUDGING,
        "    events = [call.failed(POLICY_DENIED, payload), *told(call)]",
        "    events = [call.failed(POLICY_DENIED, payload)]",
        f"{TOLD} -k denied_call_never",
    ),
    Mutant(
        "an altered policy counts",
        IN_FORCE,
        "        if not row.is_genuine:",
        "        if False:",
        f"{ROWS} -k past_us",
    ),
    Mutant(
        "a policy that was taken away is not missed",
        IN_FORCE,
        "    if (revision.live, revision.policies) != (len(rows), digest(rows)):",
        "    if False:",
        f"{ROWS} -k past_us",
    ),
    Mutant(
        "sums are compared as floats",
        MEANING,
        "    return number if number.is_finite() else None",
        "    return Decimal(float(number)) if number.is_finite() else None",
        f"{SAID} -k exactly",
    ),
    Mutant(
        "a policy is put to a closed queue",
        ACTS,
        "        if queue.state != Queue.State.OPEN or not queue.is_genuine:",
        "        if False:",
        f"{ROWS} -k closed_queue",
    ),
    Mutant(
        "nobody looks whether a call was judged",
        "approvals/policies/verification.py",
        "            if left.judged is None and not any(live == 0 for _, live in could):",
        "            if False:",
        f"{ROWS} -k unjudged",
    ),
    Mutant(
        "arguments are found out by conditions",
        "approvals/policies/trying.py",
        "    if not (is_setter or viewer().reads_all) and ARGUMENT in body.condition:\n",
        "    if False:\n",
        "tests/approvals/test_trying.py -k finds_that_out",
    ),
    Mutant(
        "a retired version that was never there locks a policy out",
        "approvals/policies/acts.py",
        'order_by(IsNull(F("ended_at"), True).desc(), "-version")',
        'order_by("-version")',
        "tests/approvals/test_policies_forged.py -k hide_not_the_one_in_force",
    ),
    Mutant(
        "a version that nobody wrote here is the newest",
        "approvals/policies/acts.py",
        "if row.is_in_force or row.is_genuine), looked",
        "if True), looked",
        "tests/approvals/test_policies_forged.py -k locks_nobody_out",
    ),
    Mutant(
        "a policy that was retired since comes back with what was ended past us",
        "approvals/policies/acts.py",
        "            found.pop(row.name, None)\n",
        "",
        "tests/approvals/test_policies_forged.py -k stays_retired",
    ),
    Mutant(
        "another spelling of a policy's name takes its number",
        "approvals/policies/acts.py",
        'Policy.objects.alias(spelled=Lower("name")).filter(spelled=name)',
        "Policy.objects.filter(name=name)",
        "tests/approvals/test_policies_forged.py -k another_spelling",
    ),
    Mutant(
        "a run that goes on from another was started by nobody whom a rule names",
        "runs/journal/asked/policies.py",
        "requester=await self._starter(asking.run_id)",
        "requester=asking.requester",
        "tests/approvals/test_policies_requester.py -k counts_in_all",
    ),
    Mutant(
        "a policy on a tag goes by what the application may write",
        "runs/journal/asked/policies.py",
        "SELECT coalesce(array_agg(tag ORDER BY tag), '{}') FROM runs_runtag WHERE run_id = %s",
        "SELECT ARRAY(SELECT runs_tags_of(tags)) FROM runs_run WHERE id = %s",
        "tests/approvals/test_policies_requester.py -k 'on_a_tag_counts or tags_anew'",
    ),
    Mutant(
        "a policy on a tag is tried on what a run has of its own",
        "approvals/policies/trying.py",
        "ARRAY(SELECT t.tag FROM runs_runtag t WHERE t.run_id = l.run_id)",
        "ARRAY(SELECT runs_tags_of(r.tags))",
        "tests/approvals/test_policies_requester.py -k 'on_a_tag_is_tried'",
    ),
    Mutant(
        "a try in place goes by the policies of before",
        "runs/journal/lookups.py",
        "            hold_to(revision, live, judged)\n",
        "            pass\n",
        f"{ROWS} -k try_in_place",
    ),
    Mutant(
        "a burst goes on under other policies",
        "runs/engine/steps/send.py",
        "            call.announced = 0\n",
        "            pass\n",
        f"{TOLD} -k try_in_place_is_held",
    ),
    Mutant(
        "a read that is tried again is not judged again",
        "runs/engine/steps/call.py",
        "    if number > 1 and call.past.intent is None:",
        "    if False:",
        f"{TOLD} -k try_in_place_is_held",
    ),
]
