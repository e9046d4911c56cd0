from importlib import import_module

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

DEMO = ("durableagents.demo.vendor_onboard", "durableagents.demo.warehouse")


class RunsConfig(AppConfig):
    name = "runs"
    label = "runs"

    def ready(self) -> None:
        """Load the agents that this process knows and check each whole graph before any run of it can start.

        Raises ImproperlyConfigured for a module that isn't there. The demo's agents are not part of a production installation.
        """
        from runs import verification
        from runs.engine.agents import registry

        verification.register()
        asked = settings.DURABLEAGENTS.agents
        for module in asked if settings.DURABLEAGENTS.is_production else [*DEMO, *asked]:
            try:
                import_module(module)
            except ModuleNotFoundError as error:
                if error.name is None or not module.startswith(error.name):
                    raise  # the module is there and needs another that isn't: its own traceback says which
                raise ImproperlyConfigured(f"DURABLEAGENTS_AGENTS: there is no module {module!r} on the Python path") from None
        for agent in registry.agents():
            agent.validate()
