from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    name = "approvals"
    label = "approvals"

    def ready(self) -> None:
        """Register the gates with the engine's waits: `runs` doesn't know them."""
        from approvals import protected as protected  # connects signal receivers
        from approvals.deadlines.due import plug_in as plug_in_deadlines
        from approvals.granting.using import plug_in as plug_in_grants
        from approvals.notices import courier
        from approvals.offered import plug_in as tell_why
        from approvals.policies.inforce import plug_in as plug_in_policies
        from approvals.policies.verification import plug_in as verify_policies
        from approvals.services import register
        from approvals.verification import plug_in

        register()
        plug_in_deadlines()
        plug_in_grants()
        plug_in()
        plug_in_policies()
        verify_policies()
        tell_why()
        courier.plug_in()
