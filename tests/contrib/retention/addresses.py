"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from uuid import UUID

from tests.roles import ADMINS, EVERY, OPERATE, SUPERUSER

API = [
    ("POST", ADMINS, "api-retention-policies api-retention-policy-end api-legal-holds api-legal-hold-lift"),
    ("POST", OPERATE | {SUPERUSER}, "api-archived-run-restore"),
    ("GET", EVERY, "api-archived-runs api-archived-run api-archived-run-events"),
    ("GET", OPERATE | {"auditor", SUPERUSER}, "api-retention"),
]
READ = [
    ({"operator", "auditor"}, "retention"),
    (EVERY, "archived_run"),
]
ACT = [
    ({"operator"}, "restorations"),
    (set(), "new_retention_policy retention_policy_ends new_legal_hold legal_hold_ends"),
]


SAMPLES = {"archived_id": lambda: [UUID(int=1)]}
