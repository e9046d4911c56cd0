"""*Busy* and *the database does not answer* are distinct, and each says which it is."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError
from psycopg import errors
from psycopg_pool import PoolTimeout

from ledger.web import pressure
from ledger.web.pressure import is_busy
from tests.cases import each_case


class Pool:
    def __init__(self, **figures: int) -> None:
        self.figures = {"pool_size": 10, "pool_max": 10, **figures}

    def get_stats(self) -> dict[str, int]:
        return self.figures


def because(reason: Exception) -> OperationalError:
    error = OperationalError("…")
    error.__cause__ = reason
    return error


@each_case(
    ("error", "busy"),
    [
        (because(errors.LockNotAvailable("x")), True),
        (because(errors.QueryCanceled("x")), True),
        (because(errors.AdminShutdown("x")), False),
        (because(errors.ConnectionFailure("x")), False),
        (OperationalError("gone"), False),
        (errors.LockNotAvailable("x"), True),
    ],
)
def test_a_lock_that_somebody_holds_is_no_outage(error: Exception, busy: bool) -> None:
    assert is_busy(error) is busy


def test_a_full_pool_is_busy_and_one_that_can_not_connect_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool()
    monkeypatch.setattr(pressure, "_failures", pressure._Failures())
    monkeypatch.setattr(pressure, "connection", type("Link", (), {"pool": pool}))
    error: Any = because(PoolTimeout("couldn't get a connection"))
    assert is_busy(error)
    pool.figures["connections_errors"] = 1
    assert not is_busy(error), "it couldn't connect a moment ago"
    monkeypatch.setattr(pressure.time, "monotonic", lambda: 1e12)
    assert is_busy(error), "that is long ago"
    pool.figures["pool_size"] = 3
    assert not is_busy(error), "there was room for more connections, and none came"
