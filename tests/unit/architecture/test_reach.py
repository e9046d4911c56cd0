from __future__ import annotations

from tests.unit.architecture.reach import reach_of

# Functions and files besides those of the ledger, whose verbs (append, justified) are read as one thing.
MOST = {
    "approvals.services.decide": (80, 16),
    "runs.services.lifecycle.start": (100, 16),
    "runs.services.starts.keys.start": (140, 22),
}


def test_who_reads_a_verb_has_few_functions_and_files_to_follow() -> None:
    for entry, (functions, files) in MOST.items():
        reach = reach_of(entry, left_out=("ledger.",))
        found = len(reach.functions), len(reach.files)
        assert found[0] <= functions and found[1] <= files, (entry, found, sorted(reach.functions))
        assert "ledger.append" in reach_of(entry).files, "it follows imports"
