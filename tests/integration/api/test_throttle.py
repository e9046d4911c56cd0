"""Guessing is slowed down, also when distributed; nobody can lock out someone else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from durableagents.identity import password_check, rate, throttle
from durableagents.identity.throttle import TooManyAttempts, attempt
from durableagents.models import Attempts
from tests.cases import each_case
from tests.integration.api.conftest import Api, is_problem
from tests.integration.runs.stage import in_turn

pytestmark = pytest.mark.django_db(transaction=True)
RIGHT = "the right password"


def tries(name: str, address: str, most: int = 100) -> int:
    for count in range(most):
        try:
            attempt(name, address)
        except TooManyAttempts:
            return count
    return most


def age(seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE durableagents_attempts SET until = until - make_interval(secs => %s)", [seconds])


def at_once(count: int, act: Callable[[int], Any]) -> list[Any]:
    gate = threading.Barrier(count)

    def one(n: int) -> Any:
        gate.wait()
        try:
            return act(n)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@pytest.fixture
def olga() -> str:
    User.objects.create_user("olga", password=RIGHT)
    return "olga"


def sign_in(name: str, password: str, address: str) -> Any:
    return Client(REMOTE_ADDR=address).post("/login", {"username": name, "password": password})


def test_a_burst_at_one_name_can_not_pass_the_count_together() -> None:
    """Sixty at once: attempts are counted before they cost anything, so no more pass than in sequence."""

    def one(n: int) -> bool:
        try:
            in_turn(lambda: attempt("olga", "192.0.2.1"))
        except TooManyAttempts:
            return False
        return True

    assert sum(at_once(60, one)) == throttle.by_name_and_address.limit


def test_a_refused_attempt_hashes_nothing(olga: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    plain = User.check_password
    monkeypatch.setattr(User, "check_password", lambda self, raw: hashed.append(raw) or plain(self, raw))
    answers = [sign_in(olga, "wrong", "192.0.2.1").status_code for _ in range(14)]
    assert answers == [400] * 10 + [429] * 4 and len(hashed) == 10
    sign = sign_in(olga, RIGHT, "192.0.2.1")
    assert sign.status_code == 429 and 0 < int(sign["Retry-After"]) <= 30, "a delay of one interval, not a lock"
    assert b"Too many failed tries" in sign.content and "_auth_user_id" not in sign.wsgi_request.session
    assert sign_in(olga, RIGHT, "192.0.2.2").status_code == 302, "nobody is locked out by somebody else's guesses"


def test_the_delay_is_short_and_a_refusal_does_not_lengthen_it() -> None:
    assert tries("olga", "192.0.2.1") == 10
    for _ in range(50):
        assert tries("olga", "192.0.2.1") == 0
    age(throttle.by_name_and_address.interval_seconds)
    assert tries("olga", "192.0.2.1") == 1


def test_who_has_signed_in_from_here_is_not_slowed_down_from_afar(olga: str) -> None:
    assert sign_in(olga, RIGHT, "192.0.2.1").status_code == 302
    guessed = sum(tries(olga, f"198.51.100.{n}") for n in range(20))
    assert guessed == throttle.by_name.limit, "all of them together"
    assert sign_in(olga, RIGHT, "203.0.113.9").status_code == 429, (
        "an address where nobody knows her has to wait a little"
    )
    for _ in range(3):
        assert sign_in(olga, RIGHT, "192.0.2.1").status_code == 302


def test_one_address_can_not_try_name_after_name() -> None:
    assert sum(tries(f"name {n}", "192.0.2.1", most=1) for n in range(80)) == throttle.by_address.limit
    assert tries("olga", "192.0.2.2", most=1) == 1


def test_a_network_of_ipv6_addresses_is_one_address() -> None:
    assert sum(tries(f"name {n}", f"2001:db8::{n:x}", most=1) for n in range(80)) == throttle.by_address.limit
    assert tries("olga", "2001:db8:0:1::1", most=1) == 1


def test_success_takes_its_attempt_back(olga: str) -> None:
    for n in range(throttle.by_address.limit - 1):
        attempt(f"name {n}", "192.0.2.1")  # one more is allowed from here
    for _ in range(throttle.by_name_and_address.limit + 2):
        assert sign_in(olga, RIGHT, "192.0.2.1").status_code == 302, "more than either of the limits"


def test_neither_names_nor_addresses_nor_passwords_typed_as_names_are_kept() -> None:
    attempt("correct horse battery staple", "192.0.2.1")
    kept = repr(list(Attempts.objects.values_list()))
    assert "horse" not in kept and "192.0.2.1" not in kept
    with connection.cursor() as cursor:
        cursor.execute("SELECT relpersistence FROM pg_class WHERE relname = 'durableagents_attempts'")
        assert cursor.fetchone() in [("u",), (b"u",)], "unlogged: guesses cost no flush"


def test_what_is_over_is_forgotten() -> None:
    for n in range(20):
        attempt(f"name {n}", f"192.0.2.{n}")
    age(3600)
    assert throttle.sweep() == 60 and not Attempts.objects.exists()


@pytest.fixture
def busy_hashing() -> Iterator[None]:
    for _ in range(password_check.HASHES_AT_ONCE):
        assert password_check._hashing.acquire(timeout=5)
    yield
    for _ in range(password_check.HASHES_AT_ONCE):
        password_check._hashing.release()


def test_too_many_hashes_at_once_are_put_off(olga: str, busy_hashing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_check, "WAIT_SECONDS", 0.05)
    answer = sign_in(olga, RIGHT, "192.0.2.1")
    assert answer.status_code == 503 and int(answer["Retry-After"]) > 0
    assert b"Too many sign-ins are in progress" in answer.content and "_auth_user_id" not in answer.wsgi_request.session


def test_no_connection_is_held_while_a_password_is_hashed(olga: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []
    plain = User.check_password
    monkeypatch.setattr(
        User, "check_password", lambda self, raw: held.append(connection.connection) or plain(self, raw)
    )
    assert sign_in(olga, RIGHT, "192.0.2.1").status_code == 302
    assert held == [None]


@each_case("name", ["", "\x00", "x" * 10_000, "\ud800", "ö" * 200, "a\x00b"])
def test_any_name_is_counted_and_refused_civilly(name: str) -> None:
    posted = name.encode("utf-8", "surrogatepass")
    assert Client(REMOTE_ADDR="192.0.2.1").post("/login", {"username": posted, "password": "x"}).status_code == 400


def test_a_key_is_limited_by_the_minute_and_told_so(
    auditor: Api, operator: Api, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "RateLimit-Limit" not in auditor.get("me")
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"rate_limit": 3})
    now = [1000.0]
    monkeypatch.setattr(rate, "monotonic", lambda: now[0])
    assert [auditor.get("me")["RateLimit-Remaining"] for _ in range(3)] == ["2", "1", "0"]
    refused = auditor.get("me")
    assert is_problem(refused, 429, "throttled") and refused["Retry-After"] == "20"
    assert refused["RateLimit-Remaining"] == "0" and refused["RateLimit-Reset"] == "60"
    assert operator.get("me").status_code == 200  # another key
    now[0] += 20
    assert [auditor.get("me").status_code for _ in range(2)] == [200, 429]
