from django.apps import AppConfig


class LedgerConfig(AppConfig):
    name = "ledger"
    label = "ledger"

    def ready(self) -> None:
        """The ledger's own part of verifying a run; the apps above add theirs in the same way."""
        from ledger.checks import HeadCheck, Overrides
        from ledger.verification import register

        register(Overrides, HeadCheck)
