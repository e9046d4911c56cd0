"""Deciding: the whole plan is shown, the first decision wins, nothing typed is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest_django.plugin import _django_db_marker  # noqa: F401 (the folder's takes no transaction=True)

from approvals.models import Approval
from durableagents.contrib.search import words as word_search
from tests.integration.console.conftest import (  # noqa: F401 (fixtures)
    Reader,
    agent,
    asked,
    finance,
    reader,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_cut_search_says_so(finance: Reader, asked: Callable[..., Approval], monkeypatch: pytest.MonkeyPatch) -> None:
    asked(item="chairs")
    asked(item="chairs")
    assert "2 , by deadline" in finance.read("/inbox", q="chairs")
    monkeypatch.setattr(word_search, "MAX_FOUND", 2)
    assert "2+ , by deadline" in finance.read("/inbox", q="chairs")
