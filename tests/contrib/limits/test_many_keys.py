"""Thousands of keys: each worker reads the limits of all once a second."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import LiteralString
from uuid import uuid4

import pytest
from django.db import connection

from durableagents.contrib.limits import services as acts
from durableagents.contrib.limits.models import Limit, Permit
from durableagents.contrib.limits.permits import READ_RULES
from durableagents.contrib.limits.queries import get_limit, list_limits
from ledger.actors import Actor
from ledger.clock import database_now
from runs.engine.limits import Rule
from runs.models import Process

pytestmark = pytest.mark.usefixtures("db")
OPERATOR = Actor("user", "olga", role="operator", auth="session", person=1)
WHY = "The other side asked for it."


def _say(key: str, at_once: int) -> None:
    acts.set_limit(key, Rule(at_once=at_once), by=OPERATOR, justification=WHY)


def _most(key: str) -> object:
    return get_limit(key).rule.at_once


def test_the_longest_pattern_counts_where_the_key_itself_says_nothing() -> None:
    Limit.objects.bulk_create(Limit(key=f"tag:{tag}") for tag in ("shop:mail_a", "shop:mail", "shop:100%_x", "other"))
    fields = {"tag:*": 1, "tag:shop:*": 2, "tag:shop:mail*": 3, "tag:shop:mail_*": 4, "tag:shop:mailer*": 5}
    for key, at_once in (fields | {"tag:shop:mail": 6}).items():
        _say(key, at_once)
    found = [_most(f"tag:{tag}") for tag in ("shop:mail_a", "shop:mail", "shop:100%_x", "other", "shop:mail*")]
    assert found == [4, 6, 2, 1, 3]
    acts.reset_limit("tag:shop:mail", by=OPERATOR, justification=WHY)
    assert _most("tag:shop:mail") == 3, "a pattern that has nothing behind what the key is"


def test_what_counts_for_five_thousand_keys_is_known_within_a_second() -> None:
    """A nested search kept a processor busy from two thousand keys on. Also with a plan cached for few keys."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE runs_limit")
        for _ in range(12):
            cursor.execute("SELECT runs_limit_rule('tag:tenant:1')")
    Limit.objects.bulk_create(Limit(key=f"tag:tenant:{i}", declared={"weight": 2}) for i in range(5000))
    _say("tag:tenant:*", 7)
    rules = "SELECT key FROM runs_limit WHERE runs_limit_rule(key) <> '{}'::jsonb"
    assert min(_took(rules) for _ in range(3)) < 1.0
    assert min(_took(READ_RULES) for _ in range(3)) < 0.3


def _took(read: LiteralString) -> float:
    """Return the seconds it takes to read all keys: the best of several tries, because of load."""
    with connection.cursor() as cursor:
        began = time.monotonic()
        cursor.execute(read, [])
        assert len(cursor.fetchall()) == 5001
        return time.monotonic() - began


def test_a_worker_reads_what_counts_and_nothing_else() -> None:
    Limit.objects.bulk_create(Limit(key=f"tool:silent_{i}") for i in range(3))
    Limit.objects.bulk_create(Limit(key=f"tag:shop:{tag}", declared={"weight": 2}) for tag in ("mail", "mailer", "x"))
    Limit.objects.create(key="tool:mine", of_tool={"per_minute": 60, "burst": 9})
    Limit.objects.create(key="provider:mail", failed=1)
    Limit.objects.create(key="tool:open", breaker="open")
    for at_once, key in enumerate(("tag:*", "tag:shop:mail*", "tag:shop:mail", "tag:other:*"), 1):
        _say(key, at_once)
    acts.set_limit("tool:*", Rule(per_minute=5), by=OPERATOR, justification=WHY)
    with connection.cursor() as cursor:
        cursor.execute("SELECT key, runs_limit_rule(key) FROM runs_limit WHERE key NOT LIKE 'tool:silent%%'", [])
        wanted = dict(cursor.fetchall())
        cursor.execute(READ_RULES, [])
        assert {key: rule for key, rule, *_ in cursor.fetchall()} == wanted


def test_a_key_that_was_mistyped_and_taken_back_is_not_shown_any_more() -> None:
    _say("tool:chrage", 10)
    assert [each.key for each in list_limits(limit=10)] == ["tool:chrage"]
    acts.reset_limit("tool:chrage", by=OPERATOR, justification=WHY)
    assert list_limits(limit=10) == []
    acts.open_breaker("tool:chrage", by=OPERATOR, justification=WHY)
    assert [each.key for each in list_limits(limit=10)] == ["tool:chrage"], "it stops something again"


def test_a_permit_whose_worker_is_gone_or_whose_time_is_over_is_not_under_way() -> None:
    """The row stays until that key is next used."""
    _say("tool:charge", 3)
    now = database_now()
    gone = Process.objects.create(
        id=uuid4(),
        kind="worker",
        host="h",
        boot="b",
        pid=1,
        born_ticks=1,
        started_at=now,
        last_heartbeat_at=now,
        ended_at=now,
    )
    for worker, minutes in ((uuid4(), 1), (uuid4(), -1), (gone.pk, 1)):
        Permit.objects.create(
            id=uuid4(),
            key="tool:charge",
            worker=worker,
            run_id=uuid4(),
            slot="0.1/1",
            taken_at=now,
            expires_at=now + timedelta(minutes=minutes),
        )
    (found,) = list_limits(limit=10)
    assert found.under_way == 1
