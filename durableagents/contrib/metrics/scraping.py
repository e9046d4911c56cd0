"""Answers a scrape, within a time limit.

The metrics come from rows that workers maintain, a few live figures, and other apps."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

from django.db import DatabaseError, connection
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from durableagents.contrib.metrics.catalogue import COUNTED, CURRENT, LIVE, metrics_of
from durableagents.server.shared_read import SharedRead
from ledger.errors import DurableAgentsError, first_line
from runs import features
from runs.fleet.members import FRESH_SECONDS

log = logging.getLogger("durableagents.contrib.metrics")

# Time limits of one statement and of a whole scrape. Prometheus waits for ten seconds.
STATEMENT_SECONDS, SCRAPE_SECONDS = 2, 5.0
_LIVE = f"""
    SELECT w.n, w.slots, w.used,
           greatest(extract(epoch FROM statement_timestamp() - (SELECT at FROM runs_sweep WHERE id = 1)), 0)::float,
           greatest(extract(epoch FROM statement_timestamp() - (SELECT at FROM metrics_snapshot)), 0)::float,
           (SELECT count(*) FROM (SELECT FROM metrics_fact WHERE kind <> 'recovering' LIMIT 100000) f)
    FROM (SELECT count(*) AS n, coalesce(sum(slots_total), 0)::int AS slots, coalesce(sum(slots_used), 0)::int AS used
          FROM runs_process WHERE kind = 'worker' AND ended_at IS NULL
          AND last_heartbeat_at > statement_timestamp() - interval '{FRESH_SECONDS} seconds') w"""
_LIVE_NAMES = ("workers", "slots", "slots_used", "sweep_age_seconds", "metrics_age_seconds", "metrics_backlog")


class MetricsUnavailable(DurableAgentsError):
    """The metrics can't be read now."""

    status, code, title = 503, "metrics-unavailable", "The metrics can't be read now"


class _Everything(Collector):
    """All metrics, read from the database for each scrape."""

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. Raises DatabaseError."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, false)", [f"{STATEMENT_SECONDS}s"])
            cursor.execute("SELECT name, labels, part, value FROM metrics_counter")
            counters = [(name, json.loads(labels), part, value) for name, labels, part, value in cursor.fetchall()]
            cursor.execute("SELECT samples || ended FROM metrics_snapshot WHERE id = 1")
            stored = cursor.fetchone()
            cursor.execute(_LIVE)
            live = cursor.fetchone()
        samples = json.loads(stored[0]) if stored else []
        yield from metrics_of(COUNTED, counters)
        yield from metrics_of(CURRENT, [(name, labels, 0, value) for name, labels, value in samples])
        up: dict[str, float] = {}
        for feature in list(features.installed.values()):
            if feature.metrics:
                found, up[feature.name] = _of_feature(feature)
                yield from found
        rows = [(name, (), 0, value) for name, value in zip(_LIVE_NAMES, live, strict=True) if value is not None]
        yield from metrics_of(LIVE, [*rows, *(("metrics_source_up", (name,), 0, is_up) for name, is_up in up.items())])


def _of_feature(feature: features.Feature) -> tuple[list[Metric], float]:
    """Return an app's metrics and 1, or no metrics and 0 if the app can't read them.

    A failure of one app doesn't affect the others."""
    try:
        return [metric for read in feature.metrics for metric in read()], 1.0
    except Exception as error:
        log.warning("the metrics of %s can't be read: %s", feature.name, first_line(error))
        return [], 0.0


_registry = CollectorRegistry(auto_describe=False)
_registry.register(_Everything())
_reading = SharedRead("metrics", lambda: generate_latest(_registry))


def scrape() -> bytes:
    """Return all metrics in Prometheus's text format. Raises MetricsUnavailable."""
    try:
        return _reading.result(SCRAPE_SECONDS)
    except TimeoutError:
        raise MetricsUnavailable(f"The database took longer than {SCRAPE_SECONDS:g} seconds. Try again.") from None
    except DatabaseError as error:
        log.warning("the metrics can't be read: %s", first_line(error))
        raise MetricsUnavailable("The database does not answer, or takes too long. Try again in a moment.") from None
