"""Encryption of the content of runs, with a key per run. See README.md."""

from __future__ import annotations

from django.apps import AppConfig


class EncryptionConfig(AppConfig):
    name = "durableagents.contrib.encryption"
    label = "encryption"
    # durableagents/grants.py reads these. Otherwise a changed key could make a run unreadable, and an entry added to
    # the register could make it look erased.
    append_only_tables = ("encryption_runkey",)
    read_only_tables = ("encryption_erasure",)
    # Read by durableagents/urls_apps.py.
    urls = "durableagents.contrib.encryption.urls"

    def ready(self) -> None:
        from durableagents.contrib.encryption import erasure, own_features, rotation, run_keys
        from ledger import codec, privileges
        from ledger import erasure as erased
        from ledger.web.navigation import SectionPage, add_pages
        from ledger.web.roles import AUDITOR, OPERATOR
        from runs import features

        keys = run_keys.RunKeys()
        codec.use_cipher(keys)
        features.install(own_features.feature(keys))
        erased.register(erasure.entries)
        add_pages(SectionPage("runs", "Runs and archives", "runs_and_archives", frozenset({OPERATOR, AUDITOR})))
        if rotation.refusal not in privileges.others:
            privileges.others.append(rotation.refusal)
