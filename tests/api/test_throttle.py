"""Guessing is slowed down; asking is free; the memory is bounded."""

from __future__ import annotations

from durableagents import throttle


def test_after_the_limit_a_key_waits_and_others_do_not() -> None:
    limiter = throttle.Limiter(limit=3, window_seconds=60)
    for _ in range(3):
        assert limiter.wait_seconds("a") == 0
        limiter.failed("a")
    assert 0 < limiter.wait_seconds("a") <= 60
    assert limiter.wait_seconds("b") == 0


def test_success_forgives() -> None:
    limiter = throttle.Limiter(limit=1, window_seconds=60)
    limiter.failed("a")
    limiter.forgive("a")
    assert limiter.wait_seconds("a") == 0


def test_failures_grow_old() -> None:
    limiter = throttle.Limiter(limit=1, window_seconds=0)
    limiter.failed("a")
    assert limiter.wait_seconds("a") == 0


def test_a_flood_of_names_does_not_fill_the_memory() -> None:
    limiter = throttle.Limiter(limit=1, window_seconds=60)
    for n in range(throttle._MAX_KEYS + 100):
        limiter.wait_seconds(f"asked {n}")
        limiter.failed(f"failed {n}")
    assert len(limiter._failures) == throttle._MAX_KEYS
