from importlib import import_module

from django.apps import AppConfig
from django.conf import settings

DEMO = "durableagents.demo.vendor_onboard"


class RunsConfig(AppConfig):
    name = "runs"
    label = "runs"

    def ready(self) -> None:
        """Load the agents that this process knows and check each whole graph before any run of it can start."""
        from runs.engine.agents import registry

        for module in [DEMO, *settings.DURABLEAGENTS.agents]:
            import_module(module)
        for agent in registry.agents():
            agent.validate()
