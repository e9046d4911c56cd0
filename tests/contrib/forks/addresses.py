"""Rows of this app in the tables of tests/integration: who may use its addresses, and what stands for their parts."""

from __future__ import annotations

from tests.roles import EVERY, OPERATE

API = [
    ("GET", EVERY, "api-run-fork api-run-start-again"),
    ("POST", OPERATE, "api-run-fork api-run-start-again"),
]
READ = [
    (EVERY, "fork start_again"),
]
ACT = [
    ({"operator"}, "forks new_starts"),
]
