"""Registers the rows of prices and default budgets as protected; see ledger/protected.py."""

from __future__ import annotations

from ledger.protected import protect
from runs.models import BudgetDefault, Price

PRICE = protect(Price, "price of", named_by="model")
BUDGET_DEFAULT = protect(BudgetDefault, "default budget", named_by="id")
