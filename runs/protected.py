"""Protected rows of schedules, prices, default budgets, limits and batches: see ledger/protected.py."""

from __future__ import annotations

from ledger.protected import protect
from runs.models import Batch, BudgetDefault, Limit, Price, Schedule

SCHEDULE = protect(Schedule, "schedule", named_by="name", free=frozenset({"updated_at", "trouble"}))
PRICE = protect(Price, "price of", named_by="model")
BUDGET_DEFAULT = protect(BudgetDefault, "default budget", named_by="id")
# Most keys have a row that only counts calls; codes protect what people set.
_SET = {"key", "given", "given_by", "given_at"}
LIMIT = protect(
    Limit,
    "limit",
    named_by="key",
    free=frozenset(each.name for each in Limit._meta.concrete_fields) - _SET,
    counts="{row}.given IS NOT NULL",
)
protect(Batch, "act on many runs", named_by="id")
