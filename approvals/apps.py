from django.apps import AppConfig
from django.conf import settings


class ApprovalsConfig(AppConfig):
    name = "approvals"
    label = "approvals"

    def ready(self) -> None:
        """Gates plug into the engine's waits here; `runs` doesn't know them."""
        from approvals import policy
        from approvals.services import register
        from approvals.verification import plug_in

        policy.QUEUES.update(settings.DURABLEAGENTS_QUEUES)
        register()
        plug_in()
