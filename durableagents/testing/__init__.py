"""The public test API: an agent's story in memory, without server, database or settings, in milliseconds; and replays
of real runs' records."""

from durableagents.testing.clock import Clock, StoryProblem
from durableagents.testing.harness import Harness
from durableagents.testing.minds import answers, calls, says, together
from durableagents.testing.oracle import Effect, Sent
from durableagents.testing.replays import CheckpointDiffers, replay_checkpoint, replay_checkpoints

__all__ = [
    "CheckpointDiffers",
    "Clock",
    "Effect",
    "Harness",
    "Sent",
    "StoryProblem",
    "answers",
    "calls",
    "replay_checkpoint",
    "replay_checkpoints",
    "says",
    "together",
]
