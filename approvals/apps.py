from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    name = "approvals"
    label = "approvals"

    def ready(self) -> None:
        """Install this app's features in `runs`, which doesn't import this app at run time."""
        from approvals import protected as protected  # connects signal receivers
        from approvals.own_features import FEATURES
        from runs import features

        features.install(*FEATURES)
