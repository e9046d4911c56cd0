"""Replays recorded runs with other code, and generates tests from runs. See README.md."""

from __future__ import annotations

from django.apps import AppConfig


class ReplayConfig(AppConfig):
    name = "durableagents.contrib.replay"
    label = "replay"

    def ready(self) -> None:
        """Install this app's feature."""
        from durableagents.contrib.replay.commands import TO_TEST
        from runs.features import Feature, install

        install(Feature(name="replay", run_commands={"to-test": TO_TEST}))
