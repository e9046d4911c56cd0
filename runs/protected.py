"""Protected rows of schedules, prices, default budgets and batches: see ledger/protected.py."""

from __future__ import annotations

from ledger.protected import protect
from runs.models import Batch, BudgetDefault, Price, Schedule

SCHEDULE = protect(Schedule, "schedule", named_by="name", free=frozenset({"updated_at", "trouble"}))
PRICE = protect(Price, "price of", named_by="model")
BUDGET_DEFAULT = protect(BudgetDefault, "default budget", named_by="id")
protect(Batch, "act on many runs", named_by="id")
