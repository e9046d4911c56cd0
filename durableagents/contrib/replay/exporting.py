"""Exports checkpoints to a folder: all or nothing, and without overwriting other files."""

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
from durableagents.contrib.replay.files import ENCRYPTED, FULL, REDACTED, InvalidRecording, encrypted_file, file_text
from durableagents.contrib.replay.reading import read_visit
from durableagents.contrib.replay.redaction import Redaction, remove_keys
from runs.engine.agents import registry
from runs.engine.recordings.recording import Recording
from runs.models import ENDED, AgentVersion, State

# For one version, selects the newest runs of each state with their newest visits. Ended runs are included only if
# started since a given time.
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
MAX_RUNS, MAX_VISITS = 40, 12


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """The location of a checkpoint."""

    run_id: UUID
    seq: int
    graph_id: str
    node: str
    visit: int


def pick_checkpoints(limit: int, since: datetime, agent: str = "") -> Iterator[CheckpointPlace]:
    """Yield representative checkpoints, at most `limit` of each version and node, taking turns between them."""
    strata: dict[tuple[str, str], deque[CheckpointPlace]] = defaultdict(deque)
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


def _of_version(graph_id: str, limit: int, since: datetime) -> list[CheckpointPlace]:
    name, _, version = graph_id.partition("@")
    ended = [str(state) for state in ENDED]
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, [list(State.values), name, version, ended, since, min(limit, MAX_RUNS), MAX_VISITS])
        rows = cursor.fetchall()
    return [CheckpointPlace(run_id, seq, graph_id, node, visit) for run_id, seq, node, visit, _ in rows]


INDEX = "export.index"
WHAT = "durableagents checkpoints export"
MODES = (REDACTED, FULL, ENCRYPTED)


class ExportFailed(Exception):
    """The export failed for the reason given, and nothing was written."""


@dataclass
class Exported:
    """The exported files, and the checkpoints that were left out with the reason."""

    files: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def strata(self) -> Counter[str]:
        return Counter(f"{each['graph_id']} {each['node']}" for each in self.files)


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export."""

    limit: int
    since: datetime
    agent: str = ""
    payloads: str = REDACTED
    paths: tuple[str, ...] = ()
    key: str = ""


def export(target: Path, options: ExportOptions, *, refresh: bool = False) -> Exported:
    """Write representative checkpoints to a folder.

    The folder is renamed to `target` once it is complete. Raises ExportFailed."""
    _check_target(target, refresh=refresh)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir(mode=0o700)  # readable only by this user
        done = _fill(partial, options)
        if not done.files:
            why = f": {done.left_out[0]}" if done.left_out else ""
            raise ExportFailed(f"there is no checkpoint to export{why}")
        index = {"what": WHAT, "payloads": options.payloads, "files": done.files, "left_out": done.left_out}
        (partial / INDEX).write_text(json.dumps(index, indent=1, ensure_ascii=False) + "\n")
        _rename_into_place(partial, target)
    except OSError as error:
        raise ExportFailed(f"cannot write {error.filename}: {error.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return done


def _check_target(target: Path, *, refresh: bool) -> None:
    """Raise ExportFailed if the folder isn't empty. With `refresh`, the folder may be an earlier export."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ExportFailed(f"{target} is not a folder")
    held = sorted(path.name for path in target.iterdir())
    if not held:
        return
    if not refresh:
        raise ExportFailed(f"{target} is not empty: --refresh replaces an earlier export")
    try:
        index = json.loads((target / INDEX).read_text())
        ours = {INDEX, *(each["file"] for each in index["files"])} if index["what"] == WHAT else set()
    except (OSError, ValueError, KeyError, TypeError):
        raise ExportFailed(f"{target} is not empty, and was not made by an export ({INDEX} is missing)") from None
    others = [name for name in held if name not in ours]
    if others:
        raise ExportFailed(f"{target} contains other files: {', '.join(others[:5])}")


def _rename_into_place(partial: Path, target: Path) -> None:
    """Replace the old folder; restore it on failure. Raises ExportFailed if another process wrote there meanwhile."""
    old = target.with_name(f".{target.name}.{secrets.token_hex(4)}.old")
    if target.exists():
        target.rename(old)
        try:
            _check_target(old, refresh=True)
        except ExportFailed:
            _restore_old(old, target)
            raise ExportFailed(f"{target} was changed meanwhile by another program, so it was not replaced") from None
    try:
        partial.rename(target)
    except OSError as error:
        if old.exists():
            _restore_old(old, target)
        raise ExportFailed(f"{target} can't be replaced: {error.strerror}") from None
    shutil.rmtree(old, ignore_errors=True)


def _restore_old(old: Path, target: Path) -> None:
    """Restore the old folder.

    Raises ExportFailed with the old folder's location if another folder took its name meanwhile.
    """
    try:
        if target.exists():
            raise FileExistsError
        old.rename(target)
    except OSError:
        raise ExportFailed(
            f"{target} was created meanwhile by another program. The earlier export is in {old}"
        ) from None


def _fill(folder: Path, options: ExportOptions) -> Exported:
    done, redaction = Exported(), Redaction(options.paths, secrets.token_bytes(16))
    for each in pick_checkpoints(options.limit, options.since, options.agent):
        if len(done.files) >= options.limit:
            break
        try:
            recording = _redacted(read_visit(each.run_id, each.seq), options, redaction)
        except InvalidRecording as error:
            done.left_out.append(f"{each.graph_id} {each.node}, run {each.run_id}, event {each.seq}: {error}")
            continue
        is_sealed = options.payloads == ENCRYPTED
        name = f"{len(done.files):03}-{_name(each)}.{'sealed' if is_sealed else 'json'}"
        (folder / name).write_bytes(
            encrypted_file(recording, options.key) if is_sealed else file_text(recording).encode()
        )
        done.files.append({"file": name, "graph_id": each.graph_id, "node": each.node, "visit": each.visit})
    return done


def _name(each: CheckpointPlace) -> str:
    return f"{each.graph_id.replace('@', '-')}-{each.node}-{each.visit}"


def _redacted(recording: Recording, options: ExportOptions, redaction: Redaction) -> Recording:
    """Return the recording without keys and private values.

    Raises InvalidRecording if its state can no longer be loaded."""
    made = remove_keys(recording)
    if options.payloads == REDACTED:
        own = Redaction(options.paths, redaction.salt, declared_secrets(recording))
        made = own.redact(made)
        if (problem := _loading_problem(made)) is not None:
            raise InvalidRecording(f"the redacted state does not load: {problem}")
    return replace(made, payloads=options.payloads)


def _loading_problem(recording: Recording) -> str | None:
    try:
        registry.find(recording.graph_id).state.model_validate(recording.state)
    except ValidationError as error:
        return "; ".join(".".join(map(str, each["loc"])) for each in error.errors(include_url=False))
    return None
