"""The system tests in `make test`: one kill per failpoint and kind of commit, one test per way into an installation."""

from __future__ import annotations

import pytest

SYSTEM = "tests/system/"
SMOKE = (
    # one kill at each failpoint of the step protocol
    "crash/test_failpoints.py::test_killed_between_claim_and_load_nothing_has_happened_and_another_worker_goes_on[keyed]",
    "crash/test_failpoints.py::test_killed_before_the_intent_nobody_is_asked_what_happened[unsafe]",
    "crash/test_failpoints.py::test_killed_between_intent_and_first_byte_only_an_unsafe_call_needs_a_person[unsafe]",
    "crash/test_failpoints.py::test_killed_between_effect_and_record_the_effect_stays_single[keyed-CP3]",
    "crash/test_failpoints.py::test_killed_between_effect_and_record_the_effect_stays_single[unsafe-CP4]",
    "crash/test_failpoints.py::test_a_loop_of_a_model_goes_on_where_it_was[CP4@model]",
    "crash/test_failpoints.py::test_killed_while_a_commit_is_under_way_either_outcome_is_right[keyed-intent-2-]",
    "crash/test_failpoints.py::test_killed_while_a_commit_is_under_way_either_outcome_is_right[keyed-result-3-]",
    "crash/test_failpoints.py::test_killed_after_the_record_the_call_is_not_made_again[keyed]",
    "crash/test_failpoints.py::test_killed_after_a_checkpoint_the_run_goes_on_from_it[keyed]",
    "crash/test_failpoints.py::test_killed_while_parking_the_run_parks_again[later]",
    "crash/test_failpoints.py::test_killed_between_decision_and_claim_another_worker_takes_it_up[gated]",
    "crash/test_fencing.py::test_a_worker_that_comes_back_after_its_run_was_taken_over_writes_nothing[CP4-keyed]",
    # people in a browser
    "browser/test_story.py::test_a_vendor_is_onboarded_once_and_everybody_watches",
    # workers, web processes and the machine around them
    "fleet/test_work_goes_on.py::test_a_run_goes_on_no_matter_who_is_killed",
    "api/test_web_process.py::test_it_outlasts_the_database",
    "infra/test_up.py::test_ctrl_c_drains_everything_and_the_next_start_keeps_the_keys",
    "infra/test_privileges.py::test_the_runtime_role_may_serve",
    "upgrade/test_upgrade.py::test_restored_database_becomes_what_a_new_one_is",
    "sandbox/test_keys.py::test_same_key_and_body_is_one_effect_and_one_answer",
    "sandbox/test_keys.py::test_kill_9_loses_no_acknowledged_effect_and_doubles_none",
    "sandbox/test_oracle.py::test_a_complete_run_has_five_executed_effects",
    # what the documentation shows
    "docs/test_examples.py::test_examples_do_what_the_page_says[tutorials/first-agent.md]",
    "docs/test_examples.py::test_the_test_of_the_first_agent_passes",
)


def is_smoke(item: pytest.Item) -> bool:
    """Return whether `make test` runs this test: all but most of the system tests."""
    return not item.nodeid.startswith(SYSTEM) or item.nodeid[len(SYSTEM) :].startswith(SMOKE)


def unknown(items: list[pytest.Item]) -> list[str]:
    """Return the entries of SMOKE that name no test."""
    names = [item.nodeid[len(SYSTEM) :] for item in items if item.nodeid.startswith(SYSTEM)]
    return [entry for entry in SMOKE if not any(name.startswith(entry) for name in names)]
