from __future__ import annotations

from tests.unit.architecture.reach import reach_of

# Read as one verb each: the ledger's (append, justified), canonical bytes, fingerprints of agents, the registry of
# features, bells.
ONE_VERB = (
    "ledger.",
    "runs.engine.canonical",
    "runs.engine.fingerprint.",
    "runs.features",
    "runs.journal.notify",
)
# Functions and files besides those.
MAX_CALLS = {
    "approvals.services.decide": (75, 14),
    "runs.services.lifecycle.start": (40, 10),
    "runs.services.starts.keys.start": (75, 16),
}


def test_who_reads_a_verb_has_few_functions_and_files_to_follow() -> None:
    for entry, (functions, files) in MAX_CALLS.items():
        reach = reach_of(entry, left_out=ONE_VERB)
        found = len(reach.functions), len(reach.files)
        assert found[0] <= functions and found[1] <= files, (entry, found, sorted(reach.functions))
        assert "ledger.append" in reach_of(entry).files, "it follows imports"
