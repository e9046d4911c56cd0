"""Processes of apps that the supervisor keeps running beside its workers."""

from __future__ import annotations

import time

import pytest

from runs.workers import helpers
from runs.workers.helpers import Helper


def test_a_helper_that_ends_is_started_again_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    helper = Helper("no-such-command")
    helper.keep()
    first = helper.pid
    until = time.monotonic() + 60
    while helper.pid is not None and time.monotonic() < until:
        helper.keep()
        time.sleep(0.05)
    assert "helper no-such-command ended with code 1" in caplog.text
    while helper.pid is None and time.monotonic() < until:
        helper.keep()
        time.sleep(0.05)
    assert first is not None and helper.pid not in (None, first)
    helper.terminate()
    helper.end(helpers.YOUNG_SECONDS)
    assert helper.pid is None
