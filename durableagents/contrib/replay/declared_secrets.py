"""Secret fields in a run's record, as declared by all versions and related runs from which its payloads may come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.db import connection

from durableagents.contrib.replay.files import InvalidRecording
from durableagents.contrib.replay.redaction import Secrets
from ledger import events as e
from ledger.codec import read_clear
from ledger.redacted import pattern_of
from runs.engine.agents import Agent, registry
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.engine.recordings.recording import Recording
from runs.queries.secret_fields import KEYS_SUFFIX, models_of, secret_paths

# Selects the runs whose payloads a run's record may contain, and their migrations: its origins, parents, predecessors,
# continuations and their children. Forks of the run don't contribute.
_RELATED = """
    SELECT * FROM (WITH RECURSIVE related(id) AS (
        SELECT %s::uuid
        UNION SELECT n.id FROM related k JOIN runs_run r ON r.id = k.id CROSS JOIN LATERAL (
            SELECT unnest(ARRAY[r.forked_from, r.parent, r.came_from, r.goes_on_as])
            UNION ALL SELECT c.id FROM runs_run c WHERE c.parent = r.id) AS n(id)
        WHERE n.id IS NOT NULL),
    moved(id) AS (SELECT k.id FROM related k JOIN runs_run r ON r.id = k.id WHERE r.generation > 0 OR r.id = %s)
    SELECT DISTINCT ON (r.graph_id) k.id, r.graph_id, NULL::bytea FROM related k LEFT JOIN runs_run r ON r.id = k.id
    UNION ALL SELECT m.id, NULL, v.clear FROM moved m JOIN ledger_event v ON v.run_id = m.id
    WHERE v.kind = 'RunMigrated') AS found"""


def declared_secrets(recording: Recording) -> Secrets:
    """Return the secrets in a recording, as declared by all models that contributed.

    Raises InvalidRecording if one of these models isn't installed here."""
    return all_secrets(versions_in(recording))


def all_secrets(versions: Iterable[str]) -> Secrets:
    """Return the secrets that these versions (name@version) declare.

    Raises InvalidRecording if one of these models isn't installed here."""
    every = [_secrets_of_version(graph_id) for graph_id in versions]
    return Secrets(
        frozenset().union(*(each.fields for each in every)),
        frozenset().union(*(each.keys for each in every)),
        any(each.is_all for each in every),
        frozenset().union(*(each.patterns for each in every)),
    )


def _secrets_of_version(graph_id: str) -> Secrets:
    try:
        return secrets_of_agent(registry.find(graph_id))
    except (UnknownAgent, UnknownVersion):
        raise InvalidRecording(
            f"{graph_id} is not installed here, so its secret fields are unknown: export where it is installed, or with"
            " --payloads encrypted"
        ) from None


def versions_in(recording: Recording) -> list[str]:
    """Return the versions from which payloads in the record may come.

    Raises InvalidRecording if a run that contributed no longer exists."""
    with connection.cursor() as cursor:
        cursor.execute(_RELATED, [recording.run_id, recording.run_id])
        rows = cursor.fetchall()
    found = {recording.graph_id, f"{recording.created.agent}@{recording.created.version}"}
    for event in (*recording.before, *recording.events):
        found.update(_versions_named_in(event))
    for run_id, graph_id, clear in rows:
        if clear is not None:
            event_data = read_clear(bytes(clear))
            found |= {str(event_data["of"]), str(event_data["to"])}
        elif graph_id is None:
            raise InvalidRecording(
                f"run {run_id}, which contributed to it, no longer exists, so its secret fields are unknown"
            )
        else:
            found.add(graph_id)
    return sorted(found)


def _versions_named_in(event: e.Event) -> Iterator[str]:
    match event:
        case e.RunMigrated():
            yield from (event.of, event.to)
        case e.ChildStarted() | e.ChildEnded() | e.RunHandedOff():
            yield event.agent


def secrets_of_agent(agent: Agent) -> Secrets:
    """Return an agent's secret fields, each by the last name in its path. Any field of that name may hold a secret."""
    every = [path for _, model in models_of(agent) for path in secret_paths(model)]
    last = [(path.removesuffix(KEYS_SUFFIX).rpartition(".")[2].lower(), path.endswith(KEYS_SUFFIX)) for path in every]
    named = [(name.replace("[]", ""), name.count("[]"), is_key) for name, is_key in last]
    return Secrets(
        frozenset(name for name, _, is_key in named if name and not is_key),
        frozenset((name, within) for name, within, is_key in named if name and is_key),
        any(not name for name, _, _ in named),
        frozenset(pattern_of(path) for tool in agent.all_tools() for path in tool.redact),
    )
