"""The feature of this app."""

from __future__ import annotations

from durableagents.contrib.limits import budget_queries, budget_waits
from durableagents.contrib.limits import services as services  # importing it registers acts that can need two people
from durableagents.contrib.limits.budget_verify import Charges, check_shared_budgets
from durableagents.contrib.limits.metrics import read_metrics
from durableagents.contrib.limits.permits import WorkerLimits
from durableagents.contrib.limits.status import limit_reason
from runs.features import Feature, PromptSweep
from runs.models import Wait


def feature() -> Feature:
    """Return the feature."""
    return Feature(
        name="limits",
        limits=WorkerLimits,
        on_withdraw=("SELECT runs_settle_rest(%s)",),
        on_wait_due={Wait.Kind.POOL: budget_waits.give_up},
        prompt_sweeps=(PromptSweep(is_due=budget_waits.IS_DUE, act=budget_waits.admit_waiting),),
        status_reasons=(limit_reason,),
        run_facts={"has_shared_budgets": "to_jsonb(EXISTS (SELECT 1 FROM runs_pool))"},
        run_panels=(budget_queries.run_panel,),
        reconcile_panels=(budget_queries.waiting_panel,),
        run_checks=(Charges,),
        run_tables={"runs_poolcharge": "run_id"},
        record_checks=(check_shared_budgets,),
        metrics=(read_metrics,),
    )
