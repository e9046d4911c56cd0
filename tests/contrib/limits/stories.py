"""A shared budget of every call, for tests/integration/runs/test_verification.py."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contrib.limits.budgets import pool


def prepare(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("durableagents.contrib.limits.budget_verify.LATE", timedelta())  # runs were made a moment before
    pool("tool_calls", 10**6)
