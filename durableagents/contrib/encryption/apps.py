"""Payloads of runs are encrypted under a key per run. See README.md."""

from __future__ import annotations

from django.apps import AppConfig


class EncryptionConfig(AppConfig):
    name = "durableagents.contrib.encryption"
    label = "encryption"
    # Columns that the runtime role may not change; it deletes no row either.
    frozen_columns = {"encryption_runkey": ("run_id", "made_at")}

    def ready(self) -> None:
        from durableagents.contrib.encryption import rotation, run_keys
        from ledger import codec, privileges
        from runs import features

        keys = run_keys.RunKeys()
        codec.use_cipher(keys)
        features.install(features.Feature(name="encryption", on_birth=(keys.born,), before_read=(keys.prepare,)))
        if rotation.refusal not in privileges.others:
            privileges.others.append(rotation.refusal)
