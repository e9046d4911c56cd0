"""Replays of real runs' records, for agents' tests. Importing it needs no server, database or settings."""

from durableagents.contrib.replay.checkpoints import CheckpointDiffers, replay_checkpoint, replay_checkpoints

__all__ = ["CheckpointDiffers", "replay_checkpoint", "replay_checkpoints"]
