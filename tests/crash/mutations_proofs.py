"""Seeded bugs in what a yes has to show. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

PROOF, VOTES, JUDGING, GATES, STEPUP, SERVICES, VERIFIED = (
    "runs/engine/gate/proof.py", "runs/engine/gate/votes.py", "runs/engine/steps/policies/judging.py",
    "runs/engine/steps/gates.py", "approvals/stepup/checking.py", "approvals/services.py",
    "approvals/policies/verification.py",
)  # fmt: skip
ENGINE, STORY = "tests/engine/test_proofs.py", "tests/approvals/test_stepup.py"

PROVING = [
    Mutant("a decision asks nobody to show anything", SERVICES, " if verdict == APPROVE else None\n    terms = ", " if False else None\n    terms = ", f"{STORY} -k fresh_second_factor"),
    Mutant("the engine uses a yes that showed too little", VOTES, "        return next(filter(None, (short_of(question.payload, shown_with(yes)) for yes in yes_to_it)), \"\")\n", "        return \"\"\n", ENGINE),
    Mutant("a vote that showed too little counts", VOTES, "    return [x for x in yes if not short_of(question.payload, shown_with(x))]\n", "    return yes\n", ENGINE),
    Mutant("a call goes out again on a yes that showed less than its policy wants", JUDGING, "        if each.queue not in yes or not is_shown(call, each, given, brought)\n", "        if each.queue not in yes\n", f"{ENGINE} -k what_went_out"),
    Mutant("a call leaves on a yes that showed less than its policy wants", GATES, "        if not is_shown(call, each, given, brought):\n", "        if False:\n", f"{ENGINE} -k that_comes_after_the_yes"),
    Mutant("what policies want shown isn't in the plan", GATES, "    proof = proofs.get(plan[\"queue\"], NO_PROOF)\n", "    proof = NO_PROOF\n", f"{STORY} -k says_so_on_record"),
    Mutant("a threshold that was set meanwhile doesn't count", STEPUP, "    for each in thresholds:\n", "    for each in ():\n", f"{STORY} -k set_after_the_question"),
    Mutant("a key shows who uses it", STEPUP, "        if by.kind != \"user\":\n", "        if False:\n", f"{STORY} -k test_a_key_is_told"),
    Mutant("a proof of tomorrow is fresh", PROOF, "if type(age) is not int or not 0 <= age <= self.within:", "if type(age) is not int or not age <= self.within:", ENGINE),
    Mutant("a password is a second factor", PROOF, "(FACTORS if self.factor else FACTORS | {PASSWORD})", "(FACTORS | {PASSWORD})", f"{STORY} -k fresh_second_factor"),
    Mutant("who names no amount is below it", PROOF, "            isinstance(amount, Amount) and amount.currency == self.currency and abs(amount.value) <= self.above\n", "            not isinstance(amount, Amount) or (amount.currency == self.currency and abs(amount.value) <= self.above)\n", f"{STORY} -k counts_as_above"),
    Mutant("a comma is a point", PROOF, "Decimal(found[0].replace(\",\", \"\"))", "Decimal(found[0].replace(\",\", \".\", 1).replace(\",\", \"\"))", ENGINE),
    Mutant("what a queue asks to be shown can be taken away past us", "approvals/queue_models.py", 'for name in ("proof", "reasons", "again") if', 'for name in ("reasons", "again") if', f"{STORY} -k taken_away_past_us_closes"),
    Mutant("what was shown isn't covered by a decision's code", "approvals/models.py", "        proof = {} if self.proof is None else {\"proof\": self.proof}\n", "        proof: dict[str, Any] = {}\n", f"{STORY} -k stronger_proof"),
    Mutant("a click on a demo's button shows who somebody is", "durableagents/views.py", "        request.session.pop(PROVED_BY, None)  # the button shows nothing of anybody\n", "", "tests/console/test_acts.py -k one_click"),
    Mutant("nobody looks whether what a policy wants was shown", VERIFIED, "            if not is_shown:\n", "            if False:\n", f"{STORY} -k for_its_policy_is_found"),
]  # fmt: skip
