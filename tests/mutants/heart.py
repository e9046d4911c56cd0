"""Mutations of the core, of decisions and of verification. The named tests must notice each."""

from __future__ import annotations

from tests.mutants.operators import Operator, SqlOperator

CALL, DOUBT, GATES, VISIT = (
    "runs.engine.call",
    "runs.engine.unknown",
    "runs.engine.gate",
    "runs.engine.visit",
)
VOTES, POLICIES = "runs.engine.gating.stages", "runs.engine.steps.policies"
DECIDE, POLICY = "approvals.services", "approvals.policy"
VERIFY, CHAIN, CODES = "ledger.verification.runs", "ledger.chain", "ledger.codes"
TWO_ARE_ENOUGH = "len(approving(votes, question)) >= 2"
RANDOM_KEY = "__import__('secrets').token_hex(16)"

Mutation = Operator | SqlOperator

# The fault, with its mutation and the test files that must notice.
HEART: dict[str, tuple[Mutation, str]] = {
    # --- one call ---------------------------------------------------------------------------------
    "a recorded result is not used": (Operator(f"{CALL}:call_tool", "if_false", "outcome"), "test_classes"),
    "a call leaves without an intent": (
        Operator(f"{CALL}:_intend", "returns", "None"),
        "engine/test_crashes test_classes",
    ),
    "an unknown outcome is not looked at": (Operator(f"{CALL}:call_tool", "if_false", "intent"), "test_classes"),
    "a contradicted result is not asked about": (Operator(f"{CALL}:_begin", "if_false", "contradicted"), "test_belied"),
    "no guard is asked": (Operator(f"{CALL}:_begin", "if_false", "before_intent"), "engine/test_policies"),
    "policies are not judged": (
        Operator(f"{POLICIES}:PolicyGuard.before_intent", "returns", "None"),
        "engine/test_policies",
    ),
    "a repeated read is not judged again": (
        Operator(f"{CALL}:_try_again", "if_false", "intent"),
        "engine/test_policies",
    ),
    "the key is new at each try": (
        Operator("runs.engine.canonical:idempotency_key", "returns", RANDOM_KEY),
        "test_classes test_slots",
    ),
    "the intent is not in the ledger": (
        Operator(f"{CALL}:_intend", "if_true", "is_pure"),
        "engine/test_crashes test_classes",
    ),
    "a refused grant is ignored": (
        Operator(f"{CALL}:_intend", "drop", "handle_refused_grant"),
        "test_gates runs/test_again",
    ),
    "changed policies are ignored": (
        Operator(f"{CALL}:_intend", "drop", "needs_fresh_policies"),
        "engine/test_policies",
    ),
    "a result that came second is used": (
        Operator(f"{CALL}:_commit", "if_false", "is_done"),
        "runs/test_callbacks test_callback_order runs/test_late",
    ),
    "an answer that can't be recorded is lost": (
        Operator(f"{CALL}:_commit", "drop", "_report_late_result"),
        "runs/test_late test_torn test_belied",
    ),
    "a refusal is not told to the node": (
        Operator(f"{CALL}:_record_refusal", "drop", "ToolFailure"),
        "test_classes test_troubles",
    ),
    # --- unknown outcomes -------------------------------------------------------------------------
    "every class may be repeated": (Operator(f"{DOUBT}:may_repeat", "returns", "True"), "test_classes"),
    "no class may be repeated": (Operator(f"{DOUBT}:may_repeat", "returns", "False"), "test_classes"),
    "a hook's denial is never believed": (
        Operator(f"{DOUBT}:is_denial_trusted", "returns", "False"),
        "test_classes test_troubles",
    ),
    "a hook's denial is always believed": (
        Operator(f"{DOUBT}:is_denial_trusted", "returns", "True"),
        "test_classes engine/test_certified",
    ),
    "an uncertified upstream is trusted": (
        Operator(f"{DOUBT}:is_upstream_distrusted", "returns", "False"),
        "engine/test_certified",
    ),
    "the hook is not asked": (Operator(f"{DOUBT}:query_upstream", "returns", "None"), "test_classes"),
    "a halted tool is asked": (Operator(f"{DOUBT}:_is_query_halted", "returns", "False"), "test_asking"),
    "a person is not asked of a lost answer": (
        Operator(f"{DOUBT}:settle_lost_answer", "drop", "ask_person"),
        "test_classes test_troubles",
    ),
    "a rejected key is a refusal": (
        Operator(f"{DOUBT}:settle_rejected_key", "drop", "ask_person"),
        "engine/test_key_rejected",
    ),
    "an unknown outcome is asked about under the old attempt": (
        Operator(f"{DOUBT}:reopen_settlement", "drop", "go_to"),
        "test_belied",
    ),
    # --- gates ------------------------------------------------------------------------------------
    "no gate holds": (Operator(f"{GATES}:obtain_grant", "returns", "None"), "test_gates"),
    "the rule is not looked at": (Operator(f"{GATES}:obtain_grant", "if_false", "rule_for"), "test_gates"),
    "any grant fits": (Operator(f"{GATES}:_check_grant", "if_false", "granted"), "test_gates"),
    "a grant to other bytes fits": (
        Operator(f"{GATES}:_check_grant", "if_false", "_matches_plan"),
        "engine/test_amending",
    ),
    "a used grant fits": (
        Operator(f"{GATES}:_check_grant", "if_false", "is_used"),
        "test_gates approvals/test_brought",
    ),
    "an expired approval is not renewed": (
        Operator(f"{GATES}:handle_refused_grant", "drop", "request_approval"),
        "runs/test_again test_gates",
    ),
    "other people need not be asked": (
        Operator(f"{GATES}:_has_rule_changed", "returns", "False"),
        "runs/test_again test_gates",
    ),
    # --- votes ------------------------------------------------------------------------------------
    "a rejection is an approval": (Operator(f"{VOTES}:approving", "negate", "verdict"), "engine/test_stages"),
    "a vote that showed too little counts": (Operator(f"{VOTES}:approving", "if_true", "short_of"), "test_proofs"),
    "the votes are not counted again": (Operator(f"{VOTES}:lacking", "returns", "''"), "engine/test_stages"),
    "the quorum is not checked": (Operator(f"{VOTES}:lacking", "if_false", "quorum"), "engine/test_stages"),
    "one person counts twice": (Operator(f"{VOTES}:lacking", "if_false", "heard"), "engine/test_stages"),
    "one vote too many is needed": (Operator(f"{VOTES}:is_enough", "closer", "quorum"), "engine/test_stages"),
    "two of three are enough": (Operator(f"{VOTES}:is_enough", "returns", TWO_ARE_ENOUGH), "engine/test_stages"),
    # --- stopping and writing ---------------------------------------------------------------------
    "nothing stops a visit": (Operator(f"{VISIT}:Visit.check_stop", "returns", "None"), "test_stops"),
    "a boundary stops nothing": (Operator(f"{VISIT}:Visit.boundary", "returns", "None"), "test_stops"),
    "caps are not checked": (Operator(f"{VISIT}:Visit.afford", "returns", "None"), "engine/test_budget"),
    "an overtaken intent is sent": (Operator(f"{VISIT}:Visit.commit", "if_false", "is_done"), "test_stops test_torn"),
    "a torn visit goes on writing": (Operator(f"{VISIT}:Visit._write", "if_false", "is_torn"), "test_torn"),
    "a fenced worker sends": (Operator(f"{CALL}:_perform", "if_false", "is_fenced"), "test_fenced"),
    # --- deciding ---------------------------------------------------------------------------------
    "a decision on another plan counts": (
        Operator(f"{DECIDE}:decide", "if_false", "plan_hash"),
        "approvals/test_decide",
    ),
    "a passed deadline is no deadline": (
        Operator(f"{DECIDE}:check_deadline", "returns", "None"),
        "approvals/test_decide calendars/test_deadlines",
    ),
    "the row need not read as hashed": (
        Operator(f"{DECIDE}:is_plan_intact", "returns", "True"),
        "approvals/test_decide",
    ),
    "a decided question is decided again": (
        Operator(f"{DECIDE}:locked_question", "if_false", "resolved_at"),
        "approvals/test_decide test_races",
    ),
    "a forged decision is overlooked": (
        Operator(f"{DECIDE}:check_no_forged_decision", "returns", "None"),
        "approvals/test_forged_decisions",
    ),
    "a plan that was not drawn is approved": (
        Operator(f"{DECIDE}:checked_before_locks", "returns", "function"),
        "contrib/documents/test_documents",
    ),
    "the last vote is not checked": (Operator(f"{DECIDE}:_record_vote", "drop", "check"), "approvals/test_stages"),
    "no vote is the last": (Operator(f"{DECIDE}:_record_vote", "if_true", "is_last"), "approvals/test_stages"),
    "a stage that was not read is decided": (
        Operator(f"{DECIDE}:_check_stage_read", "if_false", "stage"),
        "approvals/test_stages",
    ),
    "limits are not judged": (Operator(f"{POLICY}:_beyond", "returns", "''"), "test_policy"),
    "the exact limit is above it": (Operator(f"{POLICY}:_beyond", "closer", "value"), "test_policy"),
    "another currency is within a limit": (Operator(f"{POLICY}:_beyond", "if_false", "currency"), "test_policy"),
    "a hand in the run is no obstacle": (Operator(f"{POLICY}:_own", "if_false", "own_act"), "test_policy"),
    "a second word counts": (Operator(f"{POLICY}:_own", "if_false", "said"), "test_policy"),
    "a deputy's time never ends": (Operator(f"{POLICY}:_in_place_of", "if_false", "ends_at"), "test_policy"),
    "the principal's hand is no obstacle": (Operator(f"{POLICY}:_in_place_of", "if_false", "own_act"), "test_policy"),
    "a removed role keeps its deputy": (Operator(f"{POLICY}:_in_place_of", "if_false", "roles"), "test_policy"),
    "a closed queue decides": (Operator(f"{POLICY}:_judge", "if_true", "is_open"), "test_policy"),
    "a forged queue decides": (Operator(f"{POLICY}:_judge", "if_false", "is_authentic"), "test_policy"),
    # --- verification -----------------------------------------------------------------------------
    "a changed event is not noticed": (
        Operator(f"{VERIFY}:_check_event", "if_false", "is_as_written"),
        "test_verification",
    ),
    "a forged event is not noticed": (
        Operator(f"{VERIFY}:_check_event", "if_false", "is_authentic"),
        "test_verification",
    ),
    "changed columns are not noticed": (Operator(f"{VERIFY}:_check_event", "if_false", "KIND"), "test_verification"),
    "a missing event is not noticed": (Operator(f"{VERIFY}:_read", "if_false", "last"), "test_verification"),
    "a broken link is not noticed": (Operator(f"{VERIFY}:_read", "if_false", "prev_hash"), "test_verification"),
    "a cut journal is not noticed": (Operator(f"{VERIFY}:_head_problems", "if_false", "seq"), "test_verification"),
    "a wrong head is not noticed": (Operator(f"{VERIFY}:_head_problems", "if_false", "chain"), "test_verification"),
    "rows are not compared": (Operator(f"{VERIFY}:compared", "returns", "iter(())"), "test_verified_acts"),
    "doubled rows are not noticed": (Operator(f"{VERIFY}:at_most_once", "returns", "iter(())"), "test_verification"),
    "any code is authentic": (Operator(f"{CODES}:is_authentic", "returns", "True"), "test_verification"),
    "any row's code is authentic": (
        Operator(f"{CODES}:is_rows_code", "returns", "True"),
        "approvals/test_forged_decisions",
    ),
    "the hash leaves out the time": (Operator(f"{CHAIN}:microseconds", "returns", "0"), "test_chain"),
    "the code leaves out the place": (Operator(f"{CODES}:event_code", "drop", "place"), "test_forgery"),
    # --- in the database --------------------------------------------------------------------------
    "a stale lease writes": (SqlOperator("ledger_lock", "no_raise", "DA001"), "test_journal"),
    "an intent is written under a pause": (
        SqlOperator("runs_intend", "if_false", "is_pause_requested"),
        "test_journal",
    ),
    "an intent is written under a halt": (
        SqlOperator("runs_intend", "no_call", "runs_check_halts"),
        "halts/test_halts",
    ),
    "an intent is written beyond a cap": (SqlOperator("runs_intend", "no_call", "runs_afford"), "test_journal"),
    "an intent is written under old policies": (
        SqlOperator("runs_intend", "no_call", "runs_check_policies"),
        "policies/test_policies",
    ),
    "an intent uses no grant": (SqlOperator("runs_intend", "no_call", "runs_use_grant"), "test_journal"),
    "an intent takes from no shared budget": (
        SqlOperator("runs_intend", "no_call", "runs_draw"),
        "limits/test_shared_budgets",
    ),
    "a contradicted attempt is sent again": (
        SqlOperator("runs_intend", "if_false", "runs_is_belied"),
        "test_journal test_belied",
    ),
    "a further attempt needs no approval": (
        SqlOperator("runs_intend", "no_raise", "DA002"),
        "test_journal runs/test_again",
    ),
    "a grant to other bytes is used": (
        SqlOperator(
            "runs_use_grant", "replace", "AND grant_hash = g_hash AND grant_expires_at", "AND grant_expires_at"
        ),
        "test_journal",
    ),
    "an expired grant is used": (
        SqlOperator("runs_use_grant", "replace", "grant_expires_at > clock_timestamp()", "true"),
        "test_journal",
    ),
    "a grant is used twice": (SqlOperator("runs_use_grant", "no_raise", "DA002"), "test_journal"),
    "an answered call is answered again": (SqlOperator("runs_record", "if_false", "runs_is_answered"), "test_journal"),
    "a debit settles no reservation": (
        SqlOperator("runs_record", "no_call", "runs_settle"),
        "limits/test_shared_budgets",
    ),
    "a run parks on a resolved wait": (
        SqlOperator("runs_leave", "replace", "AND id = ANY (p_waits) AND resolved_at IS NOT NULL", "AND false"),
        "test_journal",
    ),
    "an ended run's waits stay open": (
        SqlOperator("runs_leave", "replace", "AND resolved_at IS NULL", "AND false"),
        "test_journal",
    ),
    "a number is left out": (SqlOperator("ledger_append", "replace", "h.seq + 1", "h.seq + 2"), "test_journal"),
    "a moved deadline is not read again": (
        SqlOperator("runs_fire_due", "replace", "OR w.deadline > clock_timestamp()", ""),
        "test_timers",
    ),
    "a signal goes to the smallest slot": (
        SqlOperator("runs_hand_over", "replace", "ORDER BY opened_at, slot", "ORDER BY slot"),
        "test_signals",
    ),
    "the newest signal is given first": (
        SqlOperator("runs_hand_over", "replace", "ORDER BY n LIMIT", "ORDER BY n DESC LIMIT"),
        "test_signals",
    ),
    "a message is left when a run parks": (SqlOperator("runs_park", "if_false", "runs_message"), "test_taking"),
    "the exact cap is beyond it": (
        SqlOperator("runs_afford", "replace", "h.tool_calls + 1 >", "h.tool_calls + 1 >="),
        "test_journal",
    ),
}
# Modules in which small changes are sampled, since each costs a run of the tests.
MODULES: dict[str, str] = {
    CALL: "engine/test_crashes test_classes test_gates engine/test_reads test_stops",
    DOUBT: "test_classes test_troubles engine/test_key_rejected engine/test_certified test_stops",
    GATES: "test_gates engine/test_stages engine/test_amending engine/test_policies",
    VOTES: "engine/test_stages test_proofs",
    VISIT: "engine/test_crashes test_stops test_torn engine/test_branches test_mistakes",
    POLICY: "test_policy",
    CHAIN: "test_chain",
    "runs.engine.canonical": "test_canonical test_slots test_determinism",
}
