"""All that tests of agents import: a story in memory, without a server, a database or settings, in milliseconds; and
replays of what real runs have on record."""

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
