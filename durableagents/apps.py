from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class DurableAgentsConfig(AppConfig):
    name = "durableagents"
    label = "durableagents"

    def ready(self) -> None:
        from durableagents import checks  # noqa: F401  (registers them)
        from durableagents.grants import grant_after_migrate

        # This app is the last one installed: by its turn every other app's tables are there.
        post_migrate.connect(grant_after_migrate, sender=self)
        post_migrate.connect(create_roles, sender=self)


def create_roles(*, using: str, **_: Any) -> None:
    """The roles that permissions name, so that nobody has to type them: groups, empty until people are put in."""
    from django.contrib.auth.models import Group

    from ledger.access import ROLES

    for role in ROLES:
        Group.objects.using(using).get_or_create(name=role)
