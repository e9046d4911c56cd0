from django.apps import AppConfig
from django.db.backends.signals import connection_created


class LedgerConfig(AppConfig):
    name = "ledger"
    label = "ledger"

    def ready(self) -> None:
        """Register the ledger's own verification checks (other apps add theirs) and the time loaders."""
        from ledger import accounts  # noqa: F401 (it listens to changes of accounts)
        from ledger.clock import read_every_time
        from ledger.verification import registers
        from ledger.verification.accounts import every_account
        from ledger.verification.checks import Acts, HeadCheck, Overrides
        from ledger.verification.runs import register

        register(Overrides, Acts, HeadCheck)
        registers.register(registers.protected_rows, every_account)
        connection_created.connect(read_every_time, dispatch_uid="ledger.clock.read_every_time")
