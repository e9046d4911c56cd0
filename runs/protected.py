"""Protected rows of prices, default budgets, limits and version gates: see ledger/protected.py."""

from __future__ import annotations

from ledger.protected import protect
from runs.models import BudgetDefault, Limit, Price, VersionGate

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
VERSION_GATE = protect(VersionGate, "version", named_by="version")


def gate_proofs(condition: str = "true") -> str:
    """Return SQL for the proofs, as one list, of the gates `t` matching a condition and of those deleted outside."""
    return f"""(SELECT coalesce(jsonb_agg(p.proof -> 0), '[]')::text FROM (
        SELECT {VERSION_GATE.proof_sql("t")} AS proof FROM runs_versiongate t WHERE {condition}
        UNION ALL {VERSION_GATE.gone_sql()}) p)"""
