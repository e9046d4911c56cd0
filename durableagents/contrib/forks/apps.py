"""New runs that begin at a step of another run, or from its input. See README.md."""

from __future__ import annotations

from django.apps import AppConfig


class ForksConfig(AppConfig):
    name = "durableagents.contrib.forks"
    label = "forks"
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.forks.urls"

    def ready(self) -> None:
        """Register this app's feature."""
        from durableagents.contrib.forks import commands
        from durableagents.contrib.forks.starting_again import attest_repeat
        from durableagents.contrib.forks.verify import Forks
        from runs import features
        from runs.features import RunCommand

        features.install(
            features.Feature(
                name="forks",
                attest_repeat=attest_repeat,
                run_checks=(Forks,),
                run_links=(("Fork", "fork"), ("Start again", "start_again")),
                run_commands={
                    "fork": RunCommand(add_arguments=commands.add_arguments, lines=commands.fork_lines),
                    "start-again": RunCommand(
                        add_arguments=commands.add_audit_argument, lines=commands.start_again_lines
                    ),
                },
            )
        )
