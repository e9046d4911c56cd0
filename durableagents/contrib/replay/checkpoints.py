"""Replays files of `manage.py checkpoints export`, for agents' tests. This needs no server, database or settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from durableagents.contrib.replay.files import InvalidRecording, cut_after, file_text, load_file
from durableagents.testing.clock import to_its_end
from runs.engine.agents import Agent, registry
from runs.engine.errors import UnknownAgent, UnknownVersion
from runs.engine.recordings.recording import Recording
from runs.engine.recordings.replaying import replay

SUFFIXES = (".json", ".sealed")


class CheckpointDiffers(AssertionError):
    """A file can't be replayed, or the code behaves differently from the record.

    The `message` has the first difference.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The result of a replay.

    `answered` is the number of calls that were answered from the record; `beyond` lists the calls after its end."""

    file: str
    answered: int
    beyond: tuple[str, ...]


def replay_checkpoints(
    directory: str | Path,
    agents: Iterable[Agent] = (),
    *,
    newest: bool = False,
    key: str = "",
    dump: str | Path | None = None,
) -> list[Checkpoint]:
    """Replay every file of a `directory` with the current code. Nothing is sent.

    Each file must load, and its replay must make the recorded calls in the same places and no others before the end.
    `agents` are the agents to replay with (by default, all imported ones). With `newest`, an agent's newest version
    replaces one that is missing. `key` decrypts files (default: DURABLEAGENTS_CHECKPOINTS_KEY). Failing files are
    written to the folder `dump`, without the events after the difference and with a note that describes it. Raises
    CheckpointDiffers with the first difference of each file, or for an empty directory."""
    files = checkpoint_files(directory)
    if not files:
        raise CheckpointDiffers(f"{directory}: there is no checkpoint: create some with `manage.py checkpoints export`")
    done, problems = [], []
    for file in files:
        try:
            done.append(replay_checkpoint(file, agents, newest=newest, key=key, dump=dump))
        except CheckpointDiffers as error:
            problems.append(str(error))
    if problems:
        raise CheckpointDiffers(f"{len(problems)} of {len(files)} checkpoints: " + "\n".join(problems))
    return done


def replay_checkpoint(
    file: str | Path,
    agents: Iterable[Agent] = (),
    *,
    newest: bool = False,
    key: str = "",
    dump: str | Path | None = None,
) -> Checkpoint:
    """Replay one `file`, with `agents`, `newest`, `key` and `dump` as in `replay_checkpoints`.

    Raises CheckpointDiffers."""
    path = Path(file)
    try:
        recording = load_file(path.read_bytes(), key)
    except (InvalidRecording, OSError) as error:
        raise CheckpointDiffers(f"{path.name}: {error}") from None
    agent = _agent(path.name, recording, tuple(agents), newest=newest)
    found = to_its_end(replay(recording, agent))
    if found.difference is None:
        return Checkpoint(path.name, len(found.answered), tuple(found.beyond))
    hint = ""
    if recording.payloads != "full":
        hint = f" (its payloads are {recording.payloads}: a value that the code branches on may be among them)"
    words = f"{path.name}: node {recording.node!r} of {recording.graph_id}: {found.difference}{hint}"
    if dump is not None:
        words += f"; kept as {_dumped(Path(dump), recording, found.difference.slot, words)}"
    raise CheckpointDiffers(words)


def checkpoint_files(directory: str | Path) -> list[Path]:
    """Return the files of a directory, in order."""
    return sorted(path for path in Path(directory).rglob("*") if path.suffix in SUFFIXES and path.is_file())


def _agent(file: str, recording: Recording, agents: Sequence[Agent], *, newest: bool) -> Agent:
    by_id = {agent.graph_id: agent for agent in agents} or {agent.graph_id: agent for agent in registry.agents()}
    if recording.graph_id in by_id:
        return by_id[recording.graph_id]
    name = recording.graph_id.partition("@")[0]
    try:
        if newest and agents:
            return next(agent for agent in agents if agent.name == name)
        if newest:
            return registry.find(name)
    except (StopIteration, UnknownAgent, UnknownVersion):
        pass
    known = ", ".join(sorted(by_id)) or "none: import their modules first (pytest: --checkpoints-agents MODULES)"
    raise CheckpointDiffers(f"{file}: {recording.graph_id} is not installed here; installed are {known}")


def _dumped(folder: Path, recording: Recording, slot: str, words: str) -> Path:
    """Write a file without the events after the difference, and with a note that describes the difference."""
    folder.mkdir(parents=True, exist_ok=True)
    cut = replace(cut_after(recording, slot), notes=(*recording.notes, words))
    target = folder / f"{recording.name.replace('@', '-')}.json"
    target.write_text(file_text(cut))
    return target
