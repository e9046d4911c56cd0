from django.apps import AppConfig
from django.db.models.signals import post_migrate


class DurableAgentsConfig(AppConfig):
    name = "durableagents"
    label = "durableagents"

    def ready(self) -> None:
        from durableagents.grants import grant_after_migrate

        # This app is the last one installed: by its turn every other app's tables are there.
        post_migrate.connect(grant_after_migrate, sender=self)
