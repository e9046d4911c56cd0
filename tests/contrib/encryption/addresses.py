"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from tests.roles import ADMINS, OPERATE

API = [
    ("GET", OPERATE | {"auditor"}, "api-erasures"),
    ("POST", ADMINS, "api-run-erase api-erasures"),
]
READ = [
    ({"operator", "auditor"}, "runs_and_archives"),
]
ACT = [
    (set(), "erasures erasures_of_many"),
]
