"""Export of checkpoints to a folder: completely or not at all, never overwriting other files."""

from __future__ import annotations

import json
import secrets
import shutil
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection
from pydantic import ValidationError

from durableagents.contrib.replay.declared_secrets import declared_secrets
from durableagents.contrib.replay.files import ENCRYPTED, FULL, REDACTED, BadRecording, sealed, text_of
from durableagents.contrib.replay.reading import visit_of
from durableagents.contrib.replay.redaction import Redaction, without_keys
from runs.engine.agents import registry
from runs.engine.recordings.recording import Recording
from runs.models import ENDED, AgentVersion, State

# Per version the newest runs in each state with their newest visits: all active runs, and ended ones started since.
_NEWEST = """
    SELECT c.run_id, c.seq, c.node, c.visit, r.created_at
    FROM unnest(%s::text[]) AS s(state)
    CROSS JOIN LATERAL (
        SELECT id, created_at FROM runs_run
        WHERE state = s.state AND agent = %s AND version = %s
              AND (NOT (state = ANY(%s)) OR created_at >= %s)
        ORDER BY created_at DESC, id DESC LIMIT %s) AS r
    CROSS JOIN LATERAL (
        SELECT run_id, seq, node, visit FROM runs_checkpoint WHERE run_id = r.id ORDER BY seq DESC LIMIT %s) AS c
    ORDER BY r.created_at DESC, c.run_id, c.seq DESC"""
MOST_RUNS, MOST_VISITS = 40, 12


@dataclass(frozen=True, slots=True)
class Picked:
    """The place of a checkpoint."""

    run_id: UUID
    seq: int
    graph_id: str
    node: str
    visit: int


def picked(limit: int, since: datetime, agent: str = "") -> Iterator[Picked]:
    """Yield representative checkpoints, taking version and node strata in turn, at most `limit` of each."""
    strata: dict[tuple[str, str], deque[Picked]] = defaultdict(deque)
    for graph_id in _versions(agent):
        for each in _of_version(graph_id, limit, since):
            held = strata[graph_id, each.node]
            if len(held) < limit:
                held.append(each)
    while strata:
        for name in sorted(strata):
            yield strata[name].popleft()
            if not strata[name]:
                del strata[name]


def _versions(agent: str) -> list[str]:
    known = {*AgentVersion.objects.values_list("graph_id", flat=True), *(each.graph_id for each in registry.agents())}
    return [each for each in sorted(known) if agent in ("", each, each.partition("@")[0])]


def _of_version(graph_id: str, limit: int, since: datetime) -> list[Picked]:
    name, _, version = graph_id.partition("@")
    ended = [str(state) for state in ENDED]
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, [list(State.values), name, version, ended, since, min(limit, MOST_RUNS), MOST_VISITS])
        rows = cursor.fetchall()
    return [Picked(run_id, seq, graph_id, node, visit) for run_id, seq, node, visit, _ in rows]


INDEX = "export.index"
WHAT = "durableagents checkpoints export"
MODES = (REDACTED, FULL, ENCRYPTED)


class NotWritten(Exception):
    """Nothing was written, and why."""


@dataclass
class Exported:
    """A folder's files, and what was left out and why."""

    files: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def strata(self) -> Counter[str]:
        return Counter(f"{each['graph_id']} {each['node']}" for each in self.files)


@dataclass(frozen=True)
class Wish:
    """Options of an export."""

    limit: int
    since: datetime
    agent: str = ""
    payloads: str = REDACTED
    paths: tuple[str, ...] = ()
    key: str = ""


def export(target: Path, wish: Wish, *, refresh: bool = False) -> Exported:
    """Write representative checkpoints to a folder, which gets its name when it is complete. Raises NotWritten."""
    _must_be_free(target, refresh=refresh)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir(mode=0o700)  # private to this user
        done = _fill(partial, wish)
        if not done.files:
            why = f": {done.left_out[0]}" if done.left_out else ""
            raise NotWritten(f"there is no checkpoint to export{why}")
        told = {"what": WHAT, "payloads": wish.payloads, "files": done.files, "left_out": done.left_out}
        (partial / INDEX).write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        _take_its_name(partial, target)
    except OSError as error:
        raise NotWritten(f"cannot write {error.filename}: {error.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return done


def _must_be_free(target: Path, *, refresh: bool) -> None:
    """Raises NotWritten for a nonempty folder; with `refresh`, for one that no export made."""
    if not target.exists():
        return
    if not target.is_dir():
        raise NotWritten(f"{target} is no folder")
    held = sorted(path.name for path in target.iterdir())
    if not held:
        return
    if not refresh:
        raise NotWritten(f"{target} is not empty: --refresh replaces an earlier export")
    try:
        index = json.loads((target / INDEX).read_text())
        ours = {INDEX, *(each["file"] for each in index["files"])} if index["what"] == WHAT else set()
    except (OSError, ValueError, KeyError, TypeError):
        raise NotWritten(f"{target} is not empty, and was not made by an export ({INDEX} is missing)") from None
    others = [name for name in held if name not in ours]
    if others:
        raise NotWritten(f"{target} holds what no export made: {', '.join(others[:5])}")


def _take_its_name(partial: Path, target: Path) -> None:
    """Replace the old folder, restoring it on failure. Raises NotWritten if someone wrote there meanwhile."""
    old = target.with_name(f".{target.name}.{secrets.token_hex(4)}.old")
    if target.exists():
        target.rename(old)
        try:
            _must_be_free(old, refresh=True)
        except NotWritten:
            _go_back(old, target)
            raise NotWritten(f"{target} was written to by somebody else meanwhile: it is as it was") from None
    try:
        partial.rename(target)
    except OSError as error:
        if old.exists():
            _go_back(old, target)
        raise NotWritten(f"{target} can't be replaced: {error.strerror}") from None
    shutil.rmtree(old, ignore_errors=True)


def _go_back(old: Path, target: Path) -> None:
    """Restore the old folder. Raises NotWritten with its place if the name was taken meanwhile."""
    try:
        if target.exists():
            raise FileExistsError
        old.rename(target)
    except OSError:
        raise NotWritten(f"{target} is somebody else's by now: the earlier export is in {old}") from None


def _fill(folder: Path, wish: Wish) -> Exported:
    done, redaction = Exported(), Redaction(wish.paths, secrets.token_bytes(16))
    for each in picked(wish.limit, wish.since, wish.agent):
        if len(done.files) >= wish.limit:
            break
        try:
            recording = _fit_to_leave(visit_of(each.run_id, each.seq), wish, redaction)
        except BadRecording as error:
            done.left_out.append(f"{each.graph_id} {each.node}, run {each.run_id}, event {each.seq}: {error}")
            continue
        is_sealed = wish.payloads == ENCRYPTED
        name = f"{len(done.files):03}-{_name(each)}.{'sealed' if is_sealed else 'json'}"
        (folder / name).write_bytes(sealed(recording, wish.key) if is_sealed else text_of(recording).encode())
        done.files.append({"file": name, "graph_id": each.graph_id, "node": each.node, "visit": each.visit})
    return done


def _name(each: Picked) -> str:
    return f"{each.graph_id.replace('@', '-')}-{each.node}-{each.visit}"


def _fit_to_leave(recording: Recording, wish: Wish, redaction: Redaction) -> Recording:
    """Return the recording without what must not be exported. Raises BadRecording if no loadable state is left."""
    made = without_keys(recording)
    if wish.payloads == REDACTED:
        own = Redaction(wish.paths, redaction.salt, declared_secrets(recording))
        made = own.of(made)
        if (problem := _does_not_load(made)) is not None:
            raise BadRecording(f"what is redacted leaves no state that loads: {problem}")
    return replace(made, payloads=wish.payloads)


def _does_not_load(recording: Recording) -> str | None:
    try:
        registry.find(recording.graph_id).state.model_validate(recording.state)
    except ValidationError as error:
        return "; ".join(".".join(map(str, each["loc"])) for each in error.errors(include_url=False))
    return None
