"""The story that reports count, and a reader of what a scrape answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from durableagents.contrib.metrics import collecting
from durableagents.contrib.metrics.commits import commits
from tests.contrib.reports.conftest import Scenario, _agents_of_this_test, outside, scenario, stage, tools

__all__ = ["Scenario", "_agents_of_this_test", "outside", "scenario", "stage", "tools"]

TOKEN = "scrape-me-if-you-can"


@pytest.fixture(autouse=True)
def token(settings: Any) -> str:
    """Let scrapers in by a token."""
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"metrics_token": TOKEN})
    return TOKEN


class Scraped:
    """The samples of one answer."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {each.name: each for each in text_string_to_metric_families(text)}
        self.samples = {
            (sample.name.removeprefix("durableagents_"), tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        return self.samples.get((name, tuple(sorted(labels.items()))), 0.0)

    def by(self, name: str, *labels: str) -> dict[Any, float]:
        """Return a metric's values, summed by these labels; by one alone as its plain value."""
        found: dict[Any, float] = {}
        for (of, named), value in self.samples.items():
            if of == name:
                key = tuple(dict(named).get(label, "") for label in labels)
                which = key[0] if len(key) == 1 else key
                found[which] = found.get(which, 0.0) + value
        return {key: value for key, value in found.items() if value}


def scraped(client: Any, headers: Mapping[str, str] | None = None) -> Scraped:
    given = {"Authorization": f"Bearer {TOKEN}"} if headers is None else headers
    answer = client.get("/metrics", headers=given)
    assert answer.status_code == 200, answer.content
    return Scraped(answer.content.decode())


def collect(times: int = 2) -> None:
    """Let a worker count: effects are complete once the writers seen by one pass are over, so by the next."""
    commits.flush()
    for _ in range(times):
        collecting.collect()
