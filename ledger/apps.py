from django.apps import AppConfig
from django.db.backends.signals import connection_created


class LedgerConfig(AppConfig):
    name = "ledger"
    label = "ledger"

    def ready(self) -> None:
        from ledger.clock import read_every_time

        connection_created.connect(read_every_time, dispatch_uid="ledger.clock.read_every_time")
