"""Seeded bugs in what is seen of a version, and in who is told: see mutations.py."""

from __future__ import annotations

from tests.crash.mutant import Mutant

REACH, FLEET = "runs/engine/fingerprint/reach.py", "runs/fleet/agent_versions.py"
PACKAGE, OTHER = "tests/engine/test_fingerprint_package.py", "tests/runs/test_other_code.py"
BASELINE, RECORDED = "tests/runs/test_baseline.py", "runs/fleet/baseline.py"
CHECKPOINTS = "runs/engine/checkpoints/other_code.py"

VERSIONS = [
    Mutant("a helper in another module changes and nobody sees it", REACH, "        if attribute is not None:\n            self._from(", "        if attribute is None:\n            self._from(", f"{PACKAGE} -k is_seen_and_named"),
    Mutant("another function hides under an imported name", REACH, "        self.say(f\"{name} is {module}{f'.{attribute}' if attribute else ''}\")\n", "", f"{PACKAGE} -k is_seen_and_named"),
    Mutant("a module counts by whether it is loaded", "runs/engine/fingerprint/source.py", "        spec = None if loaded is not None else _found(name)\n", "        spec = None\n", f"{PACKAGE} -k loaded_yet"),
    Mutant("what declares something is asked where it is loaded", REACH, "        if self._declared.is_one(module, name):\n", "        if module.name in sys.modules and self._declared.is_one(module, name):\n", f"{PACKAGE} -k whatever_declares"),
    Mutant("whoever is called as ours are declares something", "runs/engine/fingerprint/declares.py", "        if self._one_of(module, function, _DECORATORS):\n", "        if _chain(function)[-1:] == (\"tool\",):\n", f"{PACKAGE} -k called_as_ours"),
    Mutant("an upgrade lets changed code in", FLEET, "    return not is_current(stored) and agent.is_own(stored)", "    return not is_current(stored)", "tests/runs/test_versions.py -k slip_changed"),
    Mutant("a change is recorded instead of refused", "runs/management/commands/agents.py", "        refused = [str(change) for change in found.changed] + self._gone", "        refused = [str(change) for change in found.changed if not is_write] + self._gone", f"{BASELINE} -k never_written"),
    Mutant("a version with runs under way is forgotten", "runs/management/commands/agents.py", "            if count:\n", "            if count and graph_id not in forgotten:\n", f"{BASELINE} -k under_way"),
    Mutant("a baseline that was edited is believed", RECORDED, "    if digest(parts, scheme) != fingerprint:", "    if False:", f"{BASELINE} -k damaged_future"),
    Mutant("a checkpoint of other code is driven on in production", "runs/engine/checkpoints/other_code.py", "    if runtime.refuses_other_code:\n", "    if False:\n", f"{OTHER} -k by_name"),
    Mutant("a look at one code holds for every other", CHECKPOINTS, " and payload_of(event).get(\"code\") == code", "", f"{OTHER} -k no_other"),
    Mutant("an older scheme's checkpoint is taken for other code", "runs/engine/agents.py", "        return not is_current(fingerprint) and fingerprint in self.older_fingerprints()", "        return False", f"{OTHER} -k older_scheme"),
]  # fmt: skip
