"""Seeded bugs of what is known of other sides, of probes and of crash tests. See `mutations.py`, which has them too."""

from __future__ import annotations

from tests.crash.mutant import Mutant

SEND, DOUBT, ADMIT = "runs/engine/steps/send.py", "runs/engine/steps/doubt.py", "runs/engine/steps/arguments.py"
SEEN, FOUND, KNOWN = (
    "runs/certification/observing.py", "runs/certification/results.py", "runs/certification/known.py",
)  # fmt: skip
JUDGE = "durableagents/crashtest/judging.py"
REJECTED, TRUSTED, PROBED = (
    "tests/engine/test_key_rejected.py", "tests/engine/test_certified.py", "tests/certification/test_probing.py",
)  # fmt: skip
WORKERS, JUDGED = "tests/runs/test_certified.py", "tests/certification/test_crashtest.py"

CERTIFIED = [
    Mutant("a rejected key is taken for a refusal", SEND, "        return await rejected(call, error)\n", "        return Refusal(\"key_rejected\", error.message, None)\n", f"{REJECTED} -k unknown_and_a_person"),
    Mutant("a rejected key leaves no suspicion", DOUBT, "| ({KEY_REJECTED: rejection} if rejection else {})", "| {}", f"{REJECTED} -k suspected"),
    Mutant("what ignores keys is repeated unasked", DOUBT, "    return standing.is_unsafe or (", "    return False and (", f"{TRUSTED} -k never_repeated"),
    Mutant("what isn't certified is called where that is refused", ADMIT, "    if certificates.policy == \"refuse\":\n", "    if certificates.policy == \"never\":\n", f"{TRUSTED} -k operator_reads_why"),
    Mutant("a hook that was seen to deny is believed", DOUBT, "is_fresh=True)).is_denier\n", "is_fresh=True)).is_unsafe\n", f"{TRUSTED} -k is_not_believed"),
    Mutant("an address is shown with what opens it", "durableagents/crashtest/addresses.py", "    return f\"{HIDDEN}@{place}\" if at else place\n", "    return split.netloc\n", f"{JUDGED} -k shown_without"),
    Mutant("nobody is asked before others' systems are called", "durableagents/management/commands/crashtest.py", "        if not given[\"is_sandbox\"] and not is_here(asked.effects):\n", "        if given[\"inside\"]:\n", f"{JUDGED} -k may_be_real"),
    Mutant("tools that were left out are not told of", "durableagents/management/commands/crashtest.py", "        if left_out := told[\"uncovered\"]:\n", "        if left_out := told.get(\"left_out\"):\n", f"{JUDGED} -k named_as_left_out"),
    Mutant("a probe compares nothing", SEEN, "    if first.effect != repeat.effect:\n", "    if repeat.effect is None:\n", f"{PROBED} -k two_effects"),
    Mutant("an answer that names nothing certifies", SEEN, "    if not _is_telling(plan, seen):\n", "    if plan.tool is None:\n", f"{PROBED} -k proves_nothing"),
    Mutant("a certificate that has expired counts", FOUND, "newest_of.seconds - elapsed <= 0", "newest_of.seconds - elapsed <= -1e9", f"{PROBED} -k certificate_ends"),
    Mutant("a certificate outlasts a change of the tool", FOUND, "    if newest_of.made_of != tool_digest(tool):\n", "    if newest_of.made_of == \"\":\n", f"{PROBED} -k changed_tool"),
    Mutant("a probe that nobody here made counts", FOUND, "        if not is_rows_code(code_key(), TABLE, row.coded(), bytes(code)):\n", "        if not bytes(code):\n", f"{PROBED} -k nobody_here_wrote"),
    Mutant("a restored database makes a tool better", KNOWN, "        if earlier is not None and (newest is None or newest.at < earlier[0]):\n", "        if earlier is not None and newest is earlier:\n", f"{WORKERS} -k brought_back"),
    Mutant("two effects of one call are one", JUDGE, "        if much > 1:\n", "        if much > 9:\n", f"{JUDGED} -k held_against"),
    Mutant("a call without its effect is none that is lost", JUDGE, "        if much == 0 and is_done:\n", "        if much < 0:\n", f"{JUDGED} -k held_against"),
]  # fmt: skip
