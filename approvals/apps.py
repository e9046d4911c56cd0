from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    name = "approvals"
    label = "approvals"

    def ready(self) -> None:
        """Gates plug into the engine's waits here; `runs` doesn't know them."""
        from approvals.deadlines.plugged import plug_in as plug_in_deadlines
        from approvals.services import register
        from approvals.verification import plug_in

        register()
        plug_in_deadlines()
        plug_in()
