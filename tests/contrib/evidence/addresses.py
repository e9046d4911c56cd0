"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from tests.roles import EVERY

API = [
    ("GET", EVERY - {"integrator"}, "api-run-evidence"),
]
READ = [
    (EVERY - {"integrator"}, "evidence"),
]
ACT = [
    (EVERY - {"integrator"}, "evidence_exports"),
]
