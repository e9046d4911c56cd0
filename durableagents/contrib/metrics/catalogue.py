"""The metrics of this app: name, type, meaning and labels. docs/reference/metrics.md lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

PREFIX = "durableagents_"
# Upper bounds of the buckets of histograms, in seconds. A last bucket takes all longer times.
COMMITS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
RECOVERIES = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
LONG = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 259200.0, 604800.0)

# Label values of a metric. The part of a histogram is the number of a bucket, or SUM.
Labels = tuple[str, ...]
SUM = -1


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `name` is written without the prefix; the samples of a counter end in `_total`."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def exposed_name(self) -> str:
        return f"{PREFIX}{self.name}" + ("_total" if self.type == "counter" else "")

    def metric(self, values: Mapping[Labels, Mapping[int, float]]) -> Metric:
        """Return the metric in the text format, with these values.

        A metric without labels gets the value 0 if none is stored.
        """
        found = Metric(f"{PREFIX}{self.name}", self.help, self.type)
        if not values and not self.labels and self.type != "gauge":
            values = {(): {}}
        for labels, parts in sorted(values.items()):
            named = dict(zip(self.labels, labels, strict=True))
            if self.type == "histogram":
                self._add_buckets(found, named, parts)
            else:
                found.add_sample(self.exposed_name, named, parts.get(0, 0.0))
        return found

    def _add_buckets(self, found: Metric, named: dict[str, str], parts: Mapping[int, float]) -> None:
        count = 0.0
        for n, bound in enumerate((*self.buckets, float("inf"))):
            count += parts.get(n, 0.0)
            found.add_sample(f"{PREFIX}{self.name}_bucket", {**named, "le": floatToGoString(bound)}, count)
        found.add_sample(f"{PREFIX}{self.name}_count", named, count)
        found.add_sample(f"{PREFIX}{self.name}_sum", named, parts.get(SUM, 0.0))


def _counter(name: str, help: str, *labels: str) -> Family:
    return Family(name, "counter", help, labels)


def _gauge(name: str, help: str, *labels: str) -> Family:
    return Family(name, "gauge", help, labels)


def _histogram(name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Family:
    return Family(name, "histogram", help, labels, buckets)


COUNTED = (
    _counter("runs_created", "Runs that were accepted.", "agent"),
    _counter("runs_ended", "Ends of runs; a run that is retried can end again.", "agent", "state"),
    _histogram("run_seconds", "Time from a run's creation to its end.", LONG, "agent", "state"),
    _histogram("wait_seconds", "Time from the opening of a wait to its resolution.", LONG, "kind", "queue"),
    _counter("recoveries", "Runs taken from a lost worker.", "cause"),
    _counter("recoveries_settled", "Recoveries by result.", "cause", "outcome"),
    _histogram(
        "recovery_seconds", "Time from a lost worker's last heartbeat to the run's next step.", RECOVERIES, "cause"
    ),
    _counter("effects", "Calls whose effect was recorded in the ledger.", "tool"),
    _counter("calls_repeated", "Calls sent again with the same key because their response was lost."),
    _counter("unknown_outcomes", "Calls whose outcome was unknown, so that a person was asked."),
    _counter("model_requests", "Model requests that were answered, or lost but still charged.", "model"),
    _counter("model_requests_repeated", "Model requests that were sent again.", "model"),
    _counter("model_errors", "Model requests that failed for good.", "code"),
    _counter("tokens", "Tokens of model requests.", "agent", "model", "direction"),
    _counter("cost_usd", "Cost of model requests with a known price, in US dollars.", "agent", "model"),
    _counter("unpriced_requests", "Model requests without a known price.", "model"),
    _histogram(
        "commit_seconds", "Time of a worker's journal writes, including the wait for a place in a batch.", COMMITS
    ),
    _counter("commit_failures", "Journal writes that the database refused.", "reason"),
)
CURRENT = (
    _gauge("runs", "Runs by state.", "state", "agent"),
    _gauge("waits", "Open waits.", "kind", "queue"),
    _gauge("wait_oldest_seconds", "Age of the oldest open wait.", "kind", "queue"),
    _gauge("waits_overdue", "Open waits past their deadline.", "kind"),
    _gauge("ready_runs", "Runs that are ready and have no worker."),
    _gauge("ready_oldest_seconds", "Time for which the oldest of these runs has been ready."),
    _gauge("unserved_versions", "Agent versions with ready runs that no worker has loaded."),
    _gauge("recoveries_open", "Recovered runs that have not taken their next step yet."),
    _gauge("recovery_oldest_seconds", "Time for which the oldest of these runs has been waiting."),
)
LIVE = (
    _gauge("workers", "Workers with a recent heartbeat."),
    _gauge("slots", "Runs that the live workers can execute at once."),
    _gauge("slots_used", "Runs that the live workers are executing."),
    _gauge("sweep_age_seconds", "Age of the last housekeeping sweep."),
    _gauge("metrics_age_seconds", "Age of the figures that workers collect; those of ended runs may be older."),
    _gauge("metrics_backlog", "Recorded events that are not counted yet."),
    _gauge("metrics_source_up", "Whether an app could read its metrics.", "source"),
)
FAMILIES: Mapping[str, Family] = {each.name: each for each in (*COUNTED, *CURRENT, *LIVE)}


def metrics_of(families: Sequence[Family], rows: Iterable[tuple[str, Sequence[str], int, float]]) -> Iterator[Metric]:
    """Yield the metrics from rows of name, label values, part and value.

    Unknown names, written by a newer version of this app that runs elsewhere, are left out."""
    values: dict[str, dict[Labels, dict[int, float]]] = {}
    for name, labels, part, value in rows:
        values.setdefault(name, {}).setdefault(tuple(labels), {})[part] = value
    for family in families:
        yield family.metric(values.get(family.name, {}))
