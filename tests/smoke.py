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
    "crash/test_fencing.py::test_connections_cut_at_any_moment_cost_nothing",
    # people in a browser
    "browser/test_story.py::test_a_vendor_is_onboarded_once_and_everybody_watches",
    "browser/test_story.py::test_a_killed_worker_is_a_seam_on_the_timeline",
    "browser/test_reading.py::test_approve_waits_until_every_argument_was_in_view",
    "browser/test_refusals.py::test_a_refused_decision_keeps_its_words",
    # workers, web processes and the machine around them
    "fleet/test_work_goes_on.py::test_a_run_goes_on_whoever_is_killed",
    "fleet/test_supervisor.py::test_sigterm_drains_the_workers_and_ends_with_zero",
    "fleet/test_database_restart.py::test_the_fleet_lives_through_a_killed_database[back at once]",
    "api/test_web_process.py::test_it_outlasts_the_database",
    "api/test_doors.py::test_what_is_no_request_is_refused_at_the_door",
    "infra/test_up.py::test_ctrl_c_drains_everything_and_the_next_start_keeps_the_keys",
    "infra/test_privileges.py",
    "upgrade/test_upgrade.py::test_restored_database_becomes_what_a_new_one_is",
    "sandbox/test_keys.py",
    "sandbox/test_oracle.py",
    # what the documentation shows
    "docs/test_examples.py::test_examples_do_what_the_page_says[tutorials/api.md]",
    "docs/test_examples.py::test_examples_do_what_the_page_says[tutorials/agent.md]",
    "docs/test_examples.py::test_the_test_of_the_first_agent_passes",
)


def is_smoke(item: pytest.Item) -> bool:
    """Return whether `make test` runs this test: all but most of the system tests."""
    return not item.nodeid.startswith(SYSTEM) or item.nodeid[len(SYSTEM) :].startswith(SMOKE)


def unknown(items: list[pytest.Item]) -> list[str]:
    """Return the entries of SMOKE that name no test."""
    names = [item.nodeid[len(SYSTEM) :] for item in items if item.nodeid.startswith(SYSTEM)]
    return [entry for entry in SMOKE if not any(name.startswith(entry) for name in names)]
