"""Merkle roots, signed bytes, JSON lines and witnesses' addresses: without a database."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from durableagents.contrib.seals import keyring
from durableagents.contrib.seals.keyring import SealKeyProblem, read_key
from durableagents.contrib.seals.merkle import merkle_root
from durableagents.contrib.seals.records import NO_SEAL, Leaf, SealLine, SealRecord, public_bytes
from durableagents.env import EnvironmentProblem, load
from durableagents.seal_witness import read_witness
from tests.cases import each_case

AT = datetime(2026, 5, 4, 3, 2, 1, 7, tzinfo=UTC)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
LEAVES = tuple(Leaf(UUID(int=n), n, sha256(bytes([n])).digest()) for n in (1, 2, 3))

# The leaves of the reference implementation of RFC 6962 (certificate-transparency, merkle_tree_test), and its roots of
# the first one, two, … of them.
INPUTS = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)


def test_roots_are_those_of_rfc_6962() -> None:
    assert merkle_root([]).hex() == sha256(b"").hexdigest()
    assert tuple(merkle_root(INPUTS[:n]).hex() for n in range(1, 9)) == ROOTS


def _by_the_book(leaves: list[bytes]) -> bytes:
    """The recursive definition of RFC 6962, section 2.1."""
    if len(leaves) < 2:
        return sha256(b"\x00" + leaves[0] if leaves else b"").digest()
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return sha256(b"\x01" + _by_the_book(leaves[:k]) + _by_the_book(leaves[k:])).digest()


@given(st.lists(st.binary(max_size=8), max_size=70))
def test_roots_follow_the_definition(leaves: list[bytes]) -> None:
    assert merkle_root(leaves) == _by_the_book(leaves)


def test_a_node_can_not_be_passed_off_as_a_leaf() -> None:
    left, right = (sha256(b"\x00" + each).digest() for each in (b"a", b"b"))
    assert merkle_root([b"a", b"b"]) != merkle_root([left + right])


def line(**changed: Any) -> SealLine:
    root = merkle_root(leaf.data for leaf in LEAVES)
    record = SealRecord(3, AT, 1, NO_SEAL, root, len(LEAVES))
    record = replace(record, signature=KEY.sign(record.message))
    return SealLine(replace(record, **changed), public_bytes(KEY), LEAVES)


def test_a_line_comes_back_as_it_was() -> None:
    assert SealLine.from_json(line().to_json()) == line()
    assert line().seal.is_signed_by(public_bytes(KEY)) and line().seal.has_leaves(LEAVES)


@each_case(
    "changed",
    [
        {"number": 4},
        {"at": AT.replace(microsecond=8)},
        {"key": 2},
        {"previous": sha256(b"").digest()},
        {"root": sha256(b"").digest()},
        {"count": 2},
        {"signature": bytes(64)},
    ],
)
def test_the_signature_covers_every_field(changed: dict[str, Any]) -> None:
    assert not line(**changed).seal.is_signed_by(public_bytes(KEY))
    assert line(**changed).seal.hash != line().seal.hash


def test_each_part_of_a_leaf_counts() -> None:
    seal, (first, *rest) = line().seal, LEAVES
    for other in (
        first._replace(run_id=UUID(int=9)),
        first._replace(seq=9),
        first._replace(hash=sha256(b"9").digest()),
    ):
        assert not seal.has_leaves([other, *rest])
    assert not seal.has_leaves(LEAVES[:2]) and not seal.has_leaves(LEAVES[::-1])


@each_case(
    "text, problem",
    [
        ("", "not JSON"),
        (line().to_json()[:80], "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "version is None"),
        (json.dumps({"version": 2}), "version is 2"),
        (json.dumps({"version": 1}), "has no 'at'"),
        *(
            (json.dumps(json.loads(line().to_json()) | changed), problem)
            for changed, problem in (
                ({"number": 0}, "`number` is not a positive number"),
                ({"number": 2**63}, "`number` is not a positive number"),
                ({"number": True}, "`number` is not a positive number"),
                ({"at": "yesterday"}, "isoformat"),
                ({"at": "2026-05-04"}, "no time zone"),
                ({"at": 7}, "wrong type"),
                ({"root": "00"}, "1 bytes instead of 32"),
                ({"root": None}, "wrong type"),
                ({"signature": "zz"}, "non-hexadecimal"),
                ({"leaves": 7}, "wrong type"),
                ({"leaves": [[]]}, "unpack"),
                ({"leaves": [["x", 1, "00"]]}, "UUID"),
                ({"leaves": [[str(UUID(int=1)), -1, "00" * 32]]}, "`seq` is not a positive"),
            )
        ),
    ],
)
def test_a_damaged_line_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        SealLine.from_json(text)


# --- the key file -----------------------------------------------------------------------------------------------------


@each_case(
    "content, problem",
    [
        (None, "is missing: restore the"),
        (b"AAAA", "holds 3 bytes, but a seals' key has 32"),
        (b"", "holds 0 bytes"),
        (b"\xff\xfe", "is not base64url text"),
        (b"not base64!", "is not base64url text"),
    ],
)
def test_a_wrong_key_file_is_named_with_what_to_do(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "seal.key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SealKeyProblem, match=problem) as found:
        read_key(path)
    assert str(path) in str(found.value) and keyring._FIX in str(found.value)


def test_an_unreadable_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SealKeyProblem, match="can't be read: Is a directory"):
        read_key(tmp_path)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_witnesses_are_read_from_their_addresses() -> None:
    file = read_witness("file:///mnt/a%20b/seals.jsonl")
    assert (file.path, file.token_file) == (Path("/mnt/a b/seals.jsonl"), None)
    web = read_witness("https://witness.example.org:8443/seals?site=1#token=/run/secrets/token")
    assert (web.name, web.path) == ("https://witness.example.org:8443/seals?site=1", None)
    assert web.token_file == Path("/run/secrets/token")


@each_case(
    "text, problem",
    [
        ("seals.jsonl", "is not an address like file:///"),
        ("file://host/seals.jsonl", "is not an address"),
        ("file:///mnt/seals/", "names a folder"),
        ("ftp://example.org/x", "is not an address"),
        ("https:///x", "is not an address"),
        ("https://example.org:0x/", "is not an address"),
        ("https://u:p@example.org/", "has no user and password"),
        ("https://example.org/'", "is not an address"),
        ("https://example.org/#secret", "after # comes token="),
        ("https://example.org/#token=relative", "after # comes token="),
        ("file:///a.jsonl,file:///a.jsonl", "named twice"),
    ],
)
def test_wrong_witnesses_are_refused_in_one_line(text: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLEAGENTS_SEAL_WITNESSES", text)
    with pytest.raises(EnvironmentProblem, match=problem) as found:
        load()
    answer = str(found.value)
    assert "DURABLEAGENTS_SEAL_WITNESSES" in answer and "\n" not in answer and "u:p" not in answer
