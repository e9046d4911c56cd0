"""The secret store: ciphertext only on disk, readable after a restart, and nothing changed goes unnoticed."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durableagents.demo.vault import (
    NoSuchSecret,
    SecretExists,
    SecretUnreadable,
    Vault,
    VaultError,
)

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


def test_another_process_reads_what_this_one_wrote(vault: Vault, tmp_path: Path) -> None:
    vault.put(REFERENCE, VALUE)
    code = "from durableagents.demo.vault import Vault; import sys; print(Vault.from_environment().get(sys.argv[1]))"
    environment = os.environ | {"DURABLEAGENTS_DATA": str(tmp_path / "data")}
    done = subprocess.run([sys.executable, "-c", code, REFERENCE], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == VALUE, done.stderr


def test_the_same_value_may_be_stored_again_and_another_may_not(vault: Vault) -> None:
    vault.put(REFERENCE, VALUE)
    vault.put(REFERENCE, VALUE)
    with pytest.raises(SecretExists) as refused:
        vault.put(REFERENCE, "sk_other")
    assert vault.get(REFERENCE) == VALUE
    assert "sk_" not in str(refused.value)


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


def test_an_unknown_reference_is_said_so(vault: Vault) -> None:
    with pytest.raises(NoSuchSecret, match="CRD-000001"):
        vault.get(REFERENCE)


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "CRD-000001",
        "secret://",
        "secret://a b",
        "secret://a\n",
        "file:///etc/passwd",
        "secret://" + "a" * 201,
    ],
)
def test_what_is_no_reference_is_refused(vault: Vault, reference: str) -> None:
    with pytest.raises(VaultError):
        vault.put(reference, VALUE)
    with pytest.raises(VaultError):
        vault.get(reference)


def test_a_reference_cannot_name_a_file_elsewhere(vault: Vault, tmp_path: Path) -> None:
    vault.put("secret://../../../outside", VALUE)
    assert the_file(tmp_path).parent == tmp_path / "data" / "vault"


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


def test_files_cannot_be_swapped(vault: Vault, tmp_path: Path) -> None:
    vault.put(REFERENCE, VALUE)
    first = the_file(tmp_path)
    vault.put("secret://runs/r2/CRD-000002", "sk_other")
    (second,) = set((tmp_path / "data" / "vault").iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    with pytest.raises(SecretUnreadable, match="changed or moved"):
        vault.get("secret://runs/r2/CRD-000002")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 2}', '{"format": 1, "key": 7}', "\x00\x00"])
def test_a_damaged_file_is_said_so(vault: Vault, tmp_path: Path, text: str) -> None:
    vault.put(REFERENCE, VALUE)
    the_file(tmp_path).write_text(text)
    with pytest.raises(SecretUnreadable):
        vault.get(REFERENCE)
    with pytest.raises(SecretUnreadable):
        vault.put(REFERENCE, VALUE)


def test_another_master_key_is_told_from_tampering(vault: Vault, tmp_path: Path) -> None:
    vault.put(REFERENCE, VALUE)
    (tmp_path / "data" / "master.key").write_text("x" * 43)
    with pytest.raises(SecretUnreadable, match="another master key"):
        vault.get(REFERENCE)


def test_an_emptied_master_key_is_no_key(vault: Vault, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "master.key").write_text("")
    with pytest.raises(VaultError, match="restore it"):
        vault.put(REFERENCE, VALUE)


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=300))
def test_any_text_comes_back_and_no_two_ciphertexts_are_alike(value: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        vault = Vault(Path(folder) / "vault", Path(folder) / "master.key")
        for n in range(2):
            assert vault.get(vault.put(f"secret://{n}", value)) == value
        sealed = {json.loads(path.read_text())["ciphertext"] for path in (Path(folder) / "vault").iterdir()}
        assert len(sealed) == 2
