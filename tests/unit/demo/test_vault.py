"""The secret store: ciphertext only on disk, readable after a restart, changes noticed."""

from __future__ import annotations

import base64
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from durableagents.demo.vault import SecretExists, SecretUnreadable, Vault

REFERENCE = "secret://runs/r1/CRD-000001"
VALUE = "sk_sandbox_canary-0123456789"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "data" / "vault", tmp_path / "data" / "master.key")


def the_file(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "data" / "vault").glob("*.json")
    return found


def test_a_secret_comes_back(vault: Vault) -> None:
    assert vault.put(REFERENCE, VALUE) == REFERENCE
    assert vault.get(REFERENCE) == VALUE


def test_only_ciphertext_is_on_disk_for_the_owner_alone(vault: Vault, tmp_path: Path) -> None:
    vault.put(REFERENCE, VALUE)
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert len(files) == 2
    for path in files:
        assert VALUE.encode() not in path.read_bytes()
        assert base64.b64encode(VALUE.encode())[:20] not in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "data" / "vault").stat().st_mode) == 0o700


def test_of_many_writers_at_once_one_wins_and_nothing_is_left_lying_about(vault: Vault, tmp_path: Path) -> None:
    def write(n: int) -> str:
        try:
            vault.put(REFERENCE, f"value-{n % 2}")
        except SecretExists:
            return "refused"
        return f"value-{n % 2}"

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(write, range(16)))
    assert {outcome for outcome in outcomes if outcome != "refused"} == {vault.get(REFERENCE)}
    assert len([*(tmp_path / "data" / "vault").iterdir()]) == 1


def test_every_flipped_bit_of_the_ciphertext_is_noticed(vault: Vault, tmp_path: Path) -> None:
    vault.put(REFERENCE, VALUE)
    path = the_file(tmp_path)
    held = json.loads(path.read_text())
    for field in ("nonce", "ciphertext"):
        raw = bytearray(base64.b64decode(held[field]))
        for bit in range(len(raw) * 8):
            raw[bit // 8] ^= 1 << bit % 8
            path.write_text(json.dumps(held | {field: base64.b64encode(raw).decode()}))
            with pytest.raises(SecretUnreadable):
                vault.get(REFERENCE)
            raw[bit // 8] ^= 1 << bit % 8
