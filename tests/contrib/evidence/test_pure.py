"""The functions of verify.py give the same results as the libraries."""

from __future__ import annotations

import json
import os
import random

import pytest
import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from durableagents.contrib.evidence import verify
from durableagents.contrib.seals.merkle import inclusion_path, merkle_root
from tests.tiers import many

SEED = 8032


def _document(chance: random.Random) -> bytes:
    size = chance.choice([0, 1, 10, 300, 3000, 40_000, many(400_000, 100_000)])
    words = [os.urandom(3).hex() for _ in range(chance.choice([2, 30, 300]))]
    match chance.randrange(5):
        case 0:
            return bytes(chance.choice(b"abcdefgh ") for _ in range(min(size, 50_000)))
        case 1:
            return " ".join(chance.choice(words) for _ in range(size // 6)).encode()
        case 2:
            rows = [{"id": chance.random(), "name": chance.choice(words), "n": n} for n in range(size // 50)]
            return json.dumps(rows).encode()
        case 3:
            return os.urandom(size // 2) + bytes(size // 2)
        case _:
            return (b"ab" * size)[:size]


def test_zstandard_is_decompressed_as_the_library_does() -> None:
    chance = random.Random(SEED)
    for _ in range(many(200, 40)):
        document, level = _document(chance), chance.choice([1, 3, 3, 3, 12, 19])
        packed = zstandard.ZstdCompressor(level=level, write_checksum=chance.random() < 0.3).compress(document)
        assert verify.Zstd(packed, 1 << 26).decompress() == document
        with pytest.raises(ValueError):
            verify.Zstd(packed + b"\x00", 1 << 26).decompress()
        if document:
            with pytest.raises(ValueError):
                verify.Zstd(packed, len(document) - 1).decompress()


def test_damaged_frames_end_with_an_error_or_other_content() -> None:
    chance = random.Random(SEED)
    packed = zstandard.compress(json.dumps([{"n": n, "of": "many"} for n in range(400)]).encode(), 3)
    decoder = verify.Decoder(verify.UUID(int=1), None, is_plain=True)
    for _ in range(many(2000, 300)):
        damaged = bytearray(packed[: chance.randrange(len(packed))] if chance.random() < 0.2 else packed)
        for _ in range(chance.randrange(1, 4)):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            decoder.payload(b"\x01" + bytes(damaged))
        except ValueError:
            pass  # the usual answer


def test_aes_gcm_decrypts_as_the_library_does() -> None:
    for size in (0, 1, 15, 16, 17, 100, 5000):
        key, nonce, data, header = os.urandom(32), os.urandom(12), os.urandom(size), os.urandom(25)
        sealed = AESGCM(key).encrypt(nonce, data, header)
        assert verify.Aes(key).decrypt(nonce, sealed, header) == data
        for changed, above in ((_flipped(sealed), header), (sealed, _flipped(header)), (sealed[:-1], header)):
            with pytest.raises(ValueError):
                verify.Aes(key).decrypt(nonce, changed, above)


def _flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def test_ed25519_signatures_are_verified_as_the_library_does() -> None:
    for size in (0, 1, 100):
        key, message = Ed25519PrivateKey.generate(), os.urandom(size)
        public, signature = key.public_key().public_bytes_raw(), key.sign(message)
        assert verify.is_signature(public, signature, message)
        scalar = int.from_bytes(signature[32:], "little") + 2**252 + 27742317777372353535851937790883648493
        wrong = [
            (public, signature, message + b"x"),
            (public, _flipped(signature), message),
            (public, signature[:32] + scalar.to_bytes(32, "little"), message),  # the same point, written otherwise
            (_flipped(public), signature, message),
            (public[:-1], signature, message),
            (bytes([2]) + bytes(31), signature, message),
        ]
        assert not any(verify.is_signature(*each) for each in wrong)


def test_inclusion_proofs_lead_to_the_root_and_no_other_leaf_does() -> None:
    for count in (1, 2, 3, 7, 8, 9, 100):
        leaves = [bytes([n]) * 40 for n in range(count)]
        root = merkle_root(leaves)
        for index in range(count):
            path = inclusion_path(leaves, index)
            assert verify.root_from_path(leaves[index], index, count, path) == root
            assert verify.root_from_path(b"\xff" * 40, index, count, path) != root
            assert verify.root_from_path(leaves[index], index, count, [*path, bytes(32)]) is None
            assert verify.root_from_path(leaves[index], count, count, path) is None
