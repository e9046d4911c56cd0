"""Verify an evidence bundle: `python3 -I verify.py bundle.zip [--witness FILE] [--key KEY] [--full BUNDLE]`.

Needs Python 3.9 or newer and nothing else: no installation, no database, no network. If `cryptography` or `zstandard`
are installed, they are used because they are faster. The result is the same.

Exit code 0: everything is proven. 1: nothing was altered, but something is not proven. 2: altered, or not a bundle."""

# Two kinds of statements are kept apart:
#
# - [hash]: follows from the sealed bytes. The run's hash chain covers each event's stored bytes, and its head is a leaf
#   of a signed seal. The content is what those bytes decrypt and decompress to, with the run's key in the bundle.
# - [signed]: stated by the installation in the signed manifest of this bundle: tables outside the journal, and content
#   whose stored bytes are not in the bundle.
#
# Everything that is read here may be forged. Nothing in it is executed, and it is printed with escapes.

from __future__ import annotations

import argparse
import base64
import binascii
import dataclasses
import hashlib
import hmac
import json
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from uuid import UUID

FORMAT = "durableagents evidence 1"
MANIFEST, SIGNATURE = "manifest.json", "signature.json"
ZERO = bytes(32)
MAX_PAYLOAD = 80 * 1024 * 1024
MAX_LINE = 8 * MAX_PAYLOAD
MAX_SMALL_FILE = 64 * 1024 * 1024
UTC = timezone.utc  # noqa: UP017 (datetime.UTC is of Python 3.11)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# How many calls without an approval are kept in memory with their content.
MAX_KEPT = 200
_CHUNK = 1024 * 1024


class Refused(Exception):
    """This is not a bundle, or it can't be checked. The message gives the reason."""


# --- the ZIP file -----------------------------------------------------------------------------------------------------

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_NOT_BEFORE_1980 = 33  # 1 January 1980 in DOS format


class Member(NamedTuple):
    """A file in the bundle, with its position and size."""

    name: str
    start: int
    size: int
    crc: int


def read_members(file: BinaryIO) -> list[Member]:
    """Return the bundle's files. Raises Refused.

    A bundle is a ZIP file of one exact form: no compression, no gaps, no extra fields, no dates. Any other form is
    refused.
    """
    size = file.seek(0, 2)
    file.seek(max(0, size - _END.size))
    end = file.read(_END.size)
    if len(end) < _END.size or end[:4] != b"PK\x05\x06":
        raise Refused("truncated, or not a bundle: it does not end with the directory of a ZIP file")
    _, disk, first_disk, here, count, length, offset, comment = _END.unpack(end)
    if (disk, first_disk, comment) != (0, 0, 0) or here != count or offset + length + _END.size != size:
        raise Refused("the end of the ZIP file was altered, or the file was cut or extended")
    file.seek(offset)
    directory = file.read(length)
    members, place, at = [], 0, 0
    for n in range(count):
        member, at = _member(directory, at, place, n)
        file.seek(place)
        header = file.read(_LOCAL.size + len(member.name.encode()))
        if header != _local_header(member):
            raise Refused(f"the ZIP header of {safe(member.name)} was altered, or the bundle was zipped again")
        members.append(member)
        place = member.start + member.size
    if at != length or place != offset:
        raise Refused("the ZIP file holds bytes that belong to no file: it was altered or zipped again")
    names = [each.name for each in members]
    if len(set(names)) != len(names):
        raise Refused("a file is in the bundle twice")
    return members


def _member(directory: bytes, at: int, place: int, n: int) -> tuple[Member, int]:
    """Return the directory entry at this position. Raises Refused unless its file begins at `place`."""
    what = f"entry {n + 1} of the ZIP directory was altered, or the bundle was zipped again"
    fixed = directory[at : at + _CENTRAL.size]
    if len(fixed) < _CENTRAL.size:
        raise Refused(what)
    values = _CENTRAL.unpack(fixed)
    crc, packed, size, name_size = values[7:11]
    name_bytes = directory[at + _CENTRAL.size : at + _CENTRAL.size + name_size]
    if values[4] != 0 or packed != size:
        raise Refused(f"{what}: a file is compressed, and a bundle's files never are")
    member = Member(name_bytes.decode("ascii", "replace"), place + _LOCAL.size + name_size, size, crc)
    sizes = (crc, size, size, name_size)
    right = _CENTRAL.pack(b"PK\x01\x02", 0x0314, 20, 0, 0, 0, _NOT_BEFORE_1980, *sizes, 0, 0, 0, 0, 0x81A40000, place)
    if fixed != right or len(name_bytes) < name_size or not _is_name(member.name):
        raise Refused(what)
    return member, at + _CENTRAL.size + name_size


def _is_name(name: str) -> bool:
    parts = name.split("/")
    return name.isascii() and name.isprintable() and all(part not in ("", ".", "..") for part in parts)


def _local_header(member: Member) -> bytes:
    name = member.name.encode()
    sizes = (member.crc, member.size, member.size, len(name))
    return _LOCAL.pack(b"PK\x03\x04", 20, 0, 0, 0, _NOT_BEFORE_1980, *sizes, 0) + name


class Bundle:
    """An opened bundle. Raises Refused."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.members = {member.name: member for member in read_members(file)}

    def chunks(self, name: str) -> Iterator[bytes]:
        member = self.members[name]
        at, end = member.start, member.start + member.size
        while at < end:
            self.file.seek(at)
            part = self.file.read(min(_CHUNK, end - at))
            if not part:
                raise Refused(f"{safe(name)} is cut off")
            at += len(part)
            yield part

    def read(self, name: str) -> bytes:
        """Return a small file's bytes."""
        if name not in self.members:
            raise Refused(f"{safe(name)} is missing")
        if self.members[name].size > MAX_SMALL_FILE:
            raise Refused(f"{safe(name)} is too large: {self.members[name].size} bytes")
        return b"".join(self.chunks(name))

    def json(self, name: str) -> Any:
        try:
            return json.loads(self.read(name))
        except (ValueError, RecursionError):
            raise Refused(f"{safe(name)} was altered: it is not JSON") from None

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield a file's lines, with one line in memory at a time."""
        rest = b""
        for part in self.chunks(name) if name in self.members else ():
            *whole, rest = (rest + part).split(b"\n")
            yield from whole
            if len(rest) > MAX_LINE:
                raise Refused(f"{safe(name)} has a line that is too long")
        if rest:
            yield rest

    def digest(self, name: str) -> tuple[str, int]:
        """Return a file's SHA-256 and CRC-32."""
        sha, crc = hashlib.sha256(), 0
        for part in self.chunks(name):
            sha.update(part)
            crc = zlib.crc32(part, crc)
        return sha.hexdigest(), crc


# --- Ed25519 (RFC 8032, section 5.1.7) --------------------------------------------------------------------------------

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)


def _add(p: Any, q: Any) -> Any:
    """Add two points (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % _P, (p[1] + p[0]) * (q[1] + q[0]) % _P
    c, d = 2 * p[3] * q[3] * _D % _P, 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(scalar: int, point: Any) -> Any:
    result = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    return result


def _point(data: bytes) -> Any:
    """Decode a point; None if it is not on the curve."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    x = _P - x if x & 1 != sign else x
    return x, y, 1, x * y % _P


_BASE = _point((4 * pow(5, _P - 2, _P) % _P).to_bytes(32, "little"))


def is_signature(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether the key signed the message."""
    if len(public) != 32 or len(signature) != 64:
        return False
    key, r, s = _point(public), _point(signature[:32]), int.from_bytes(signature[32:], "little")
    if key is None or r is None or s >= _L:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % _L
    left, right = _times(s, _BASE), _add(r, _times(h, key))
    return (left[0] * right[2] - right[0] * left[2]) % _P == 0 and (left[1] * right[2] - right[1] * left[2]) % _P == 0


# --- AES-256-GCM (FIPS 197, NIST SP 800-38D) --------------------------------------------------------------------------


def _aes_tables() -> tuple[list[int], list[list[int]]]:
    """Return the S-box, and four tables that combine it with the mixing of columns."""
    powers, logs, value = [0] * 256, [0] * 256, 1
    for n in range(255):
        powers[n], logs[value] = value, n
        value ^= (value << 1) ^ (0x11B if value & 0x80 else 0)
        value &= 0xFF
    box = [0x63] * 256
    for n in range(1, 256):
        inverse = powers[(255 - logs[n]) % 255]
        box[n] = 0x63
        for turn in range(5):
            box[n] ^= ((inverse << turn) | (inverse >> (8 - turn))) & 0xFF
    tables: list[list[int]] = [[], [], [], []]
    for s in box:
        double = (s << 1) ^ (0x11B if s & 0x80 else 0)
        word = (double << 24) | (s << 16) | (s << 8) | (double ^ s)
        for n in range(4):
            tables[n].append(word)
            word = (word >> 8) | ((word & 0xFF) << 24)
    return box, tables


_BOX, (_T0, _T1, _T2, _T3) = _aes_tables()


class Aes:
    """AES-256-GCM with one key, for decryption."""

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError("the key has not 256 bits")
        words = list(struct.unpack(">8I", key))
        factor = 1
        for n in range(8, 60):
            word = words[-1]
            if n % 8 == 0:
                word = self._substituted(((word << 8) | (word >> 24)) & 0xFFFFFFFF) ^ (factor << 24)
                factor <<= 1
            elif n % 8 == 4:
                word = self._substituted(word)
            words.append(words[n - 8] ^ word)
        self.words = words
        self.products = self._products(int.from_bytes(self.block(bytes(16)), "big"))

    @staticmethod
    def _substituted(word: int) -> int:
        box = _BOX
        return box[word >> 24] << 24 | box[word >> 16 & 255] << 16 | box[word >> 8 & 255] << 8 | box[word & 255]

    def block(self, data: bytes) -> bytes:
        """Encrypt 16 bytes."""
        w, box = self.words, _BOX
        a, b, c, d = struct.unpack(">4I", data)
        a, b, c, d = a ^ w[0], b ^ w[1], c ^ w[2], d ^ w[3]
        for n in range(4, 56, 4):
            a, b, c, d = (
                _T0[a >> 24] ^ _T1[b >> 16 & 255] ^ _T2[c >> 8 & 255] ^ _T3[d & 255] ^ w[n],
                _T0[b >> 24] ^ _T1[c >> 16 & 255] ^ _T2[d >> 8 & 255] ^ _T3[a & 255] ^ w[n + 1],
                _T0[c >> 24] ^ _T1[d >> 16 & 255] ^ _T2[a >> 8 & 255] ^ _T3[b & 255] ^ w[n + 2],
                _T0[d >> 24] ^ _T1[a >> 16 & 255] ^ _T2[b >> 8 & 255] ^ _T3[c & 255] ^ w[n + 3],
            )
        rows = ((a, b, c, d), (b, c, d, a), (c, d, a, b), (d, a, b, c))
        return struct.pack(
            ">4I",
            *(
                (box[p >> 24] << 24 | box[q >> 16 & 255] << 16 | box[r >> 8 & 255] << 8 | box[s & 255]) ^ w[56 + n]
                for n, (p, q, r, s) in enumerate(rows)
            ),
        )

    @staticmethod
    def _products(h: int) -> list[list[int]]:
        """Return a table with the products of `h` and each value of each byte of a block, in the field of GHASH."""
        tables = []
        for _ in range(16):
            table = [0] * 256
            for bit in range(7, -1, -1):
                table[1 << bit] = h
                h = (h >> 1) ^ (0xE1 << 120 if h & 1 else 0)
            for value in range(1, 256):
                low = value & -value
                table[value] = table[low] ^ table[value ^ low]
            tables.append(table)
        return tables

    def _hashed(self, data: bytes) -> int:
        products, total = self.products, 0
        for at in range(0, len(data), 16):
            total ^= int.from_bytes(data[at : at + 16], "big")
            block, total = total.to_bytes(16, "big"), 0
            for n, byte in enumerate(block):
                total ^= products[n][byte]
        return total

    def decrypt(self, nonce: bytes, data: bytes, header: bytes) -> bytes:
        """Return the content. Raises ValueError if anything was changed."""
        data, tag = data[:-16], data[-16:]
        padded = header + bytes(-len(header) % 16) + data + bytes(-len(data) % 16)
        sizes = struct.pack(">QQ", 8 * len(header), 8 * len(data))
        mask = self.block(nonce + struct.pack(">I", 1))
        if (self._hashed(padded + sizes) ^ int.from_bytes(mask, "big")).to_bytes(16, "big") != tag:
            raise ValueError("it does not decrypt with the run's key")
        stream = b"".join(self.block(nonce + struct.pack(">I", 2 + n)) for n in range((len(data) + 15) // 16))
        mixed = int.from_bytes(data, "big") ^ int.from_bytes(stream[: len(data)], "big")
        return mixed.to_bytes(len(data), "big")


# --- Zstandard (RFC 8878) ---------------------------------------------------------------------------------------------


def _ranges(first: int, bits: list[int]) -> list[tuple[int, int]]:
    """Return the lowest value and the number of extra bits for each code. The ranges of values are consecutive."""
    ranges = []
    for each in bits:
        ranges.append((first, each))
        first += 1 << each
    return ranges


_LITERAL_LENGTHS = _ranges(0, [*[0] * 16, 1, 1, 1, 1, 2, 2, 3, 3, 4, *range(6, 17)])
_MATCH_LENGTHS = _ranges(3, [*[0] * 32, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, *range(7, 17)])
_USUAL_LITERALS = [4, 3, *[2] * 11, 1, 1, 1, *[2] * 9, 3, 2, *[1] * 5, *[-1] * 4]
_USUAL_OFFSETS = [*[1] * 6, 2, 2, 2, *[1] * 15, *[-1] * 5]
_USUAL_MATCHES = [1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7]


class _Forward:
    """Reads bits from the start of a byte string, lowest bit first."""

    def __init__(self, data: bytes) -> None:
        self.value, self.at, self.most = int.from_bytes(data, "little"), 0, 8 * len(data)

    def read(self, bits: int) -> int:
        self.at += bits
        if self.at > self.most:
            raise ValueError("compressed data is cut off")
        return self.value >> (self.at - bits) & ((1 << bits) - 1)


class _Backward:
    """Reads bits backwards from the end of a byte string, after a marker bit.

    Before the start it reads zeros; `at` is negative there.
    """

    def __init__(self, data: bytes) -> None:
        if not data or not data[-1]:
            raise ValueError("compressed data has no end mark")
        self.data, self.at = bytes(8) + data, 8 * len(data) - 9 + data[-1].bit_length()

    def read(self, bits: int) -> int:
        self.at -= bits
        return self.peek(0, bits)

    def peek(self, before: int, bits: int) -> int:
        """Return the `bits` bits that start `before` bits before the current position, without moving it."""
        place = self.at - before + 64
        if place < 0:
            raise ValueError("compressed data is cut off")
        start = place >> 3
        return int.from_bytes(self.data[start : start + 8], "little") >> (place & 7) & ((1 << bits) - 1)


class _Fse(NamedTuple):
    """A decoding table: for each state the symbol, the bits to read, and the number to add for the next state."""

    accuracy: int
    rows: list[tuple[int, int, int]]


def _fse(counts: list[int], accuracy: int) -> _Fse:
    size, symbols = 1 << accuracy, [0] * (1 << accuracy)
    high = size
    for symbol, count in enumerate(counts):
        if count == -1:
            high -= 1
            symbols[high] = symbol
    place, step = 0, (size >> 1) + (size >> 3) + 3
    for symbol, count in enumerate(counts):
        for _ in range(max(count, 0)):
            symbols[place] = symbol
            place = (place + step) & (size - 1)
            while place >= high:
                place = (place + step) & (size - 1)
    following, rows = [abs(count) for count in counts], []
    for symbol in symbols:
        state = following[symbol]
        following[symbol] += 1
        bits = accuracy - state.bit_length() + 1
        rows.append((symbol, bits, (state << bits) - size))
    return _Fse(accuracy, rows)


def _read_fse(data: bytes, most: int) -> tuple[_Fse, int]:
    """Parse a table's description; return the table and the size of the description."""
    stream = _Forward(data[:512])
    accuracy = stream.read(4) + 5
    if accuracy > most:
        raise ValueError("a table of compressed data is too large")
    left, counts = 1 << accuracy, list[int]()
    while left > 0 and len(counts) < 256:
        bits = (left + 1).bit_length()
        low, spare = (1 << (bits - 1)) - 1, (1 << bits) - 2 - left
        value = stream.read(bits - 1)
        if value >= spare:
            value |= stream.read(1) << (bits - 1)
            if value > low:
                value -= spare
        count = value - 1
        left -= abs(count)
        counts.append(count)
        repeats = 3 if count == 0 else 0
        while repeats == 3:
            repeats = stream.read(2)
            counts += [0] * repeats
    if left != 0 or len(counts) > 256:
        raise ValueError("a table of compressed data is malformed")
    return _fse(counts, accuracy), (stream.at + 7) // 8


class _Huffman(NamedTuple):
    """A decoding table: for each value of the next `bits` bits, the symbol and the number of bits that it uses."""

    bits: int
    rows: list[tuple[int, int]]


def _read_huffman(data: bytes) -> tuple[_Huffman, int]:
    if not data:
        raise ValueError("compressed data is cut off")
    head = data[0]
    if head >= 128:
        count, size = head - 127, 1 + (head - 126) // 2
        weights = [half for byte in data[1:size] for half in (byte >> 4, byte & 15)][:count]
    else:
        size = 1 + head
        weights = _read_weights(data[1:size])
    total = sum(1 << (weight - 1) for weight in weights if weight)
    bits = total.bit_length()
    left = (1 << bits) - total
    if len(data) < size or not total or bits > 11 or left & (left - 1) or len(weights) > 255:
        raise ValueError("a Huffman table of compressed data is malformed")
    weights.append(left.bit_length())
    rows: list[tuple[int, int]] = []
    for weight in range(1, bits + 1):
        for symbol, own in enumerate(weights):
            if own == weight:
                rows += [(symbol, bits + 1 - weight)] * (1 << (weight - 1))
    return _Huffman(bits, rows), size


def _read_weights(data: bytes) -> list[int]:
    """Decode the weights of a Huffman table: two states alternate until the bits are used up."""
    table, used = _read_fse(data, 6)
    stream, weights = _Backward(data[used:]), list[int]()
    states = [stream.read(table.accuracy), stream.read(table.accuracy)]
    turn = 0
    while len(weights) < 256:
        symbol, bits, base = table.rows[states[turn]]
        weights.append(symbol)
        states[turn] = base + stream.read(bits)
        if stream.at < 0:
            weights.append(table.rows[states[1 - turn]][0])
            return weights
        turn = 1 - turn
    raise ValueError("a Huffman table of compressed data is malformed")


def _huffman_decoded(table: _Huffman, data: bytes, count: int) -> bytes:
    stream, rows, width, out = _Backward(data), table.rows, table.bits, bytearray()
    for _ in range(count):
        symbol, bits = rows[stream.peek(width, width)]
        out.append(symbol)
        stream.at -= bits
    if stream.at != 0:
        raise ValueError("compressed data has bits left over")
    return bytes(out)


class Zstd:
    """Decompress one frame without a dictionary. Raises ValueError."""

    def __init__(self, data: bytes, most: int) -> None:
        self.data, self.most, self.out = data, most, bytearray()
        self.huffman: _Huffman | None = None
        self.tables: list[_Fse | None] = [None, None, None]
        self.offsets = [1, 4, 8]

    def decompress(self) -> bytes:
        data, at = self.data, self._frame_start()
        is_last = False
        while not is_last:
            head = int.from_bytes(data[at : at + 3], "little")
            is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            at += 3
            if at > len(data) or kind == 3 or size > 128 * 1024:
                raise ValueError("compressed data is malformed")
            block = data[at : at + (1 if kind == 1 else size)]
            at += len(block)
            if len(block) < (1 if kind == 1 else size):
                raise ValueError("compressed data is cut off")
            if kind == 2:
                self._block(block)
            else:
                self._grow(block * size if kind == 1 else block)
        if at + self.checksum != len(data) or (self.size is not None and self.size != len(self.out)):
            raise ValueError("compressed data has another size than it says")
        return bytes(self.out)

    def _grow(self, part: bytes) -> None:
        if len(self.out) + len(part) > self.most:
            raise ValueError("it decompresses to more than a payload may have")
        self.out += part

    def _frame_start(self) -> int:
        data = self.data
        if data[:4] != b"\x28\xb5\x2f\xfd" or len(data) < 6:
            raise ValueError("it is not compressed with Zstandard")
        form = data[4]
        if form & 0b1011:
            raise ValueError("compressed data needs a dictionary, or is malformed")
        is_single, self.checksum = form >> 5 & 1, 4 if form & 4 else 0
        at = 5 + (1 - is_single)
        width = (is_single, 2, 4, 8)[form >> 6]
        size = int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0)
        self.size = size if width else None
        if size > self.most:
            raise ValueError("it decompresses to more than a payload may have")
        return at + width

    def _block(self, block: bytes) -> None:
        literals, at = self._literals(block)
        head = block[at : at + 3]
        if not head:
            raise ValueError("compressed data is cut off")
        if head[0] < 128:
            count, at = head[0], at + 1
        elif head[0] < 255:
            count, at = (head[0] - 128 << 8) + head[1], at + 2
        else:
            count, at = 0x7F00 + int.from_bytes(head[1:3], "little"), at + 3
        if count == 0:
            self._grow(literals)
            return
        modes, at = block[at], at + 1
        usual = ((_USUAL_LITERALS, 6, 9), (_USUAL_OFFSETS, 5, 8), (_USUAL_MATCHES, 6, 9))
        for n, (counts, accuracy, most) in enumerate(usual):
            mode = modes >> (6 - 2 * n) & 3
            if mode == 0:
                self.tables[n] = _fse(counts, accuracy)
            elif mode == 1:
                self.tables[n], at = _Fse(0, [(block[at], 0, 0)]), at + 1
            elif mode == 2:
                self.tables[n], used = _read_fse(block[at:], most)
                at += used
        self._sequences(literals, _Backward(block[at:]), count)

    def _literals(self, block: bytes) -> tuple[bytes, int]:
        """Return a block's literals, and the position where its sequences begin."""
        kind, form = block[0] & 3, block[0] >> 2 & 3
        if kind < 2:
            width, shift = ((1, 3), (2, 4), (1, 3), (3, 4))[form]
            size, at = int.from_bytes(block[:width], "little") >> shift, width
            if kind == 0:
                return block[at : at + size], at + size
            return block[at : at + 1] * min(size, 128 * 1024), at + 1
        width, bits = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
        value = int.from_bytes(block[:width], "little") >> 4
        size, packed = value & ((1 << bits) - 1), value >> bits
        part, end = block[width : width + packed], width + packed
        if size > 128 * 1024 or end > len(block):
            raise ValueError("compressed data is malformed")
        if kind == 2:
            self.huffman, used = _read_huffman(part)
            part = part[used:]
        if self.huffman is None:
            raise ValueError("compressed data lacks its Huffman table")
        if form == 0:
            return _huffman_decoded(self.huffman, part, size), end
        ends, start, literals, each = struct.unpack_from("<3H", part), 6, b"", (size + 3) // 4
        for n in range(4):
            stop = start + ends[n] if n < 3 else len(part)
            literals += _huffman_decoded(self.huffman, part[start:stop], each if n < 3 else size - 3 * each)
            start = stop
        return literals, end

    def _sequences(self, literals: bytes, stream: _Backward, count: int) -> None:
        lengths, offsets, matches = self.tables
        if lengths is None or offsets is None or matches is None:
            raise ValueError("compressed data lacks a table")
        states = [stream.read(table.accuracy) for table in (lengths, offsets, matches)]
        used = 0
        for n in range(count):
            length, place, match = lengths.rows[states[0]], offsets.rows[states[1]], matches.rows[states[2]]
            offset = (1 << place[0]) + stream.read(place[0])
            base, bits = _MATCH_LENGTHS[match[0]]
            copied = base + stream.read(bits)
            base, bits = _LITERAL_LENGTHS[length[0]]
            fresh = base + stream.read(bits)
            if n + 1 < count:
                states[0] = length[2] + stream.read(length[1])
                states[2] = match[2] + stream.read(match[1])
                states[1] = place[2] + stream.read(place[1])
            self._grow(literals[used : used + fresh])
            used += fresh
            self._copy(self._distance(offset, fresh), copied)
        if stream.at != 0 or used > len(literals):
            raise ValueError("compressed data is malformed")
        self._grow(literals[used:])

    def _distance(self, offset: int, fresh: int) -> int:
        """Return the distance of a match. The values 1 to 3 refer to the last three distances."""
        known = self.offsets
        if offset > 3:
            self.offsets = [offset - 3, known[0], known[1]]
            return offset - 3
        place = offset - 1 + (fresh == 0)
        distance = known[0] - 1 if place == 3 else known[place]
        if place:
            self.offsets = [distance, *[known[n] for n in range(3) if n != min(place, 2)]]
        return distance

    def _copy(self, distance: int, size: int) -> None:
        start = len(self.out) - distance
        if distance < 1 or start < 0:
            raise ValueError("compressed data is malformed")
        part = bytes(self.out[start : start + size])
        while len(part) < size:
            part += part
        self._grow(part[:size])


# --- stored bytes -----------------------------------------------------------------------------------------------------

_HEADER = struct.Struct(">cQ16s")


class Decoder:
    """Reads the stored bytes of a run's events, with libraries where they are installed."""

    def __init__(self, run_id: UUID, key: bytes | None, *, is_plain: bool = False) -> None:
        self.run_id = run_id
        self.decrypt: Callable[[bytes, bytes, bytes], bytes] | None = None
        if key is not None:
            self.decrypt = Aes(key).decrypt
            try:
                if not is_plain:
                    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

                    self.decrypt = AESGCM(key).decrypt
            except ImportError:
                pass  # then the implementation in this file is used
        self.decompress = self._own_decompress
        try:
            if not is_plain:
                import zstandard

                zstd = zstandard.ZstdDecompressor()
                self.decompress = lambda data: zstd.decompress(data, max_output_size=MAX_PAYLOAD)
        except ImportError:
            pass  # then the implementation in this file is used

    @staticmethod
    def _own_decompress(data: bytes) -> bytes:
        return Zstd(data, MAX_PAYLOAD).decompress()

    def payload(self, stored: bytes, kept: bytes | None = None) -> Any:
        """Return the content of stored bytes. Raises ValueError with the problem.

        The stored bytes of a large payload are only a reference to the bytes `kept` elsewhere.
        """
        if stored[:1] == b"\x03":
            if kept is None or len(stored) != 58 or hashlib.sha256(kept).digest() != stored[26:]:
                raise ValueError("what was kept outside the database is missing, or was altered")
            stored = kept[16:]  # random bytes precede it
        if stored[:1] == b"\x02":
            stored = self._decrypted(stored)
        if stored[:1] == b"\x01":
            try:
                text = self.decompress(stored[1:])
            except Exception as error:  # raised by the library, or for a malformed frame
                raise ValueError(f"it does not decompress: {error}") from None
        elif stored[:1] == b"\x00":
            text = stored[1:]
        else:
            raise ValueError("its form is unknown")
        return json.loads(text.decode("utf-8", "surrogatepass"))

    def _decrypted(self, stored: bytes) -> bytes:
        header, nonce, data = stored[:25], stored[25:37], stored[37:]
        if len(data) < 16 or UUID(bytes=_HEADER.unpack(header)[2]) != self.run_id:
            raise ValueError("it is cut off, or another run's")
        if self.decrypt is None:
            raise ValueError("it is encrypted, and the bundle has no key of the run")
        try:
            return self.decrypt(nonce, data, header)
        except Exception:  # the library's own exception, or ValueError
            raise ValueError("it does not decrypt with the run's key") from None


# --- what is reported -------------------------------------------------------------------------------------------------


def safe(value: Any, most: int = 500) -> str:
    """Return text that is safe for a terminal: it can't move the cursor, and can't hide or reorder text."""
    text = str(value)
    cut = text if len(text) <= most else text[:most] + f"… ({len(text) - most} more)"
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in cut)


class Report:
    """Prints statements as they are made, and collects the problems."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.write = write
        self.altered: list[str] = []
        self.unproven: list[str] = []

    def say(self, text: str) -> None:
        self.write(f"{text}\n")

    def proven(self, text: str, *, grade: str = "hash") -> None:
        self.say(f"  proven [{grade}]  {text}")

    def not_proven(self, text: str) -> None:
        self.unproven.append(text)
        self.say(f"  NOT PROVEN      {text}")

    def is_altered(self, text: str) -> None:
        self.altered.append(text)
        self.say(f"  ALTERED         {text}")


def canonical(value: Any) -> bytes:
    """Return sorted compact JSON, for comparing values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def microseconds(at: str) -> int:
    moment = datetime.fromisoformat(at)
    if moment.tzinfo is None:
        raise ValueError("a time has no time zone")
    return (moment - EPOCH) // timedelta(microseconds=1)


def minute(at: str) -> str:
    return str(datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"))


def without_digest(name: str, value: Any) -> Any:
    """Return a value as text, with a note instead of the digest of a value that was left out."""
    return f"({name} left out)" if isinstance(value, dict) and set(value) == {"left out"} else value


def unhex(text: Any, size: int) -> bytes:
    data = bytes.fromhex(text)
    if len(data) != size:
        raise ValueError(f"a value has {len(data)} bytes instead of {size}")
    return data


# Exceptions that altered JSON can raise where its values are used.
MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, struct.error)


# --- seals ------------------------------------------------------------------------------------------------------------


def seal_message(seal: Any) -> bytes:
    numbers = struct.pack(">qqq", seal["number"], microseconds(seal["at"]), seal["key"])
    hashes = unhex(seal["previous"], 32) + unhex(seal["root"], 32)
    return b"durableagents seal 1" + numbers + hashes + struct.pack(">q", seal["count"])


def key_message(key: Any, before: bytes) -> bytes:
    """Return the message that the previous key signed to introduce this one. The first key signed its own message."""
    texts = hashlib.sha256(key["reason"].encode()).digest() + hashlib.sha256(key["by"].encode()).digest()
    numbers = struct.pack(">qq", key["number"], microseconds(key["made_at"]))
    return b"durableagents seal key 1" + numbers + (before or ZERO) + unhex(key["public_key"], 32) + texts


def root_from_path(leaf: bytes, index: int, count: int, path: list[bytes]) -> bytes | None:
    """Return the Merkle root that an inclusion proof gives (RFC 9162, section 2.1.3.2); None if it is malformed."""
    place, last = index, count - 1
    node = hashlib.sha256(b"\x00" + leaf).digest()
    if not 0 <= index < count:
        return None
    for other in path:
        if last == 0:
            return None
        if place & 1 or place == last:
            node = hashlib.sha256(b"\x01" + other + node).digest()
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            node = hashlib.sha256(b"\x01" + node + other).digest()
        place, last = place >> 1, last >> 1
    return node if last == 0 else None


class Keys:
    """The installation's public keys in the bundle.

    `trusted` holds the keys that the person verifying got from another source, and their successors.
    """

    def __init__(self, rows: Any, given: list[bytes], report: Report) -> None:
        self.public: dict[int, bytes] = {}
        before, self.trusted = b"", set[int]()
        for row in rows:
            number, public = row["number"], unhex(row["public_key"], 32)
            if not is_signature(before or public, unhex(row["signature"], 64), key_message(row, before)):
                report.is_altered(f"keys.json: key {safe(number)} was not signed by the key before it")
            self.public[number] = before = public
            if public in given or (self.trusted and number - 1 in self.trusted):
                self.trusted.add(number)
        self.is_given = bool(given)

    def name(self, number: Any) -> str:
        return f"key {safe(number)} ({self.public[number].hex()})" if number in self.public else f"key {safe(number)}"


# --- one run ----------------------------------------------------------------------------------------------------------

_UNSETTLED = {"sent", "accepted", "unknown"}
_TO_STATUS = {
    "ToolAccepted": "accepted",
    "ToolReturned": "done",
    "CallbackReceived": "done",
    "ToolFailed": "failed",
    "ToolNotDispatched": "not sent",
    "ToolRedispatched": "sent",
    "ToolOutcomeUnknown": "unknown",
}
_CLOSING = {"approve": "approved", "reject": "rejected", "fail": "rejected"}
_ENDS = {"RunCompleted": "completed", "RunFailed": "failed", "RunCancelled": "cancelled"}


@dataclass(frozen=True)
class EventLine:
    """One event as it was read: `is_hash` if its content was proven by its stored bytes."""

    seq: int
    at: str
    clear: Any
    payload: Any
    is_hash: bool

    def __getitem__(self, name: Any) -> Any:
        return self.clear.get(name)

    def inner(self, name: str) -> Any:
        return self.payload.get(name) if isinstance(self.payload, dict) else None


class Question(NamedTuple):
    """A question to approvers. `arguments` is a digest of the arguments that the deciders were shown."""

    line: EventLine
    arguments: bytes


class Call(NamedTuple):
    line: EventLine
    arguments: bytes


class Facts:
    """The approvals and calls of a run, collected from its events."""

    def __init__(self) -> None:
        self.questions: dict[str, Question] = {}
        self.decisions: dict[str, EventLine] = {}
        self.votes: dict[str, list[EventLine]] = {}
        self.amended: set[str] = set()
        self.calls: dict[tuple[Any, int], Call] = {}
        self.status: dict[tuple[Any, int], str] = {}
        self.results: dict[tuple[Any, int], EventLine] = {}
        self.verdicts: dict[tuple[Any, int], EventLine] = {}  # outcomes that were unknown and then settled
        self.sends: dict[tuple[Any, int], int] = {}
        self.bursts: set[tuple[Any, int]] = set()  # calls that may have been sent more often
        self.contradictions: dict[tuple[Any, int], int] = {}
        self.entered: list[int] = []  # events that enter a node, each with a checkpoint
        self.state = "not ended"
        self.erased: EventLine | None = None

    def take(self, line: EventLine) -> None:
        """Process one event."""
        kind, call = line["kind"], (line["slot"], line.clear.get("attempt", 0))
        if kind == "VisitEntered":
            self.entered.append(line.seq)
        elif kind == "ApprovalRequested":
            self.questions[line["approval_id"]] = Question(line, _digest(line.inner("arguments")))
        elif kind == "ApprovalDecided":
            self.decisions[line["approval_id"]] = line
        elif kind == "ApprovalVoted":
            self.votes.setdefault(line["approval_id"], []).append(line)
        elif kind == "PlanAmended":
            self.amended.add(line["approval_id"])
        elif kind == "ToolInvoked":
            is_kept = line["grant"] or len(self.calls) < MAX_KEPT
            kept = line if is_kept else dataclasses.replace(line, payload=None)
            self.calls[call] = Call(kept, _digest(line.inner("arguments")))
            self.status[call], self.sends[call] = "sent", 1
        elif kind == "ToolReconciled":
            self.status[call] = {"happened": "done", "did_not": "failed"}.get(line["verdict"], "unknown")
            if line["verdict"] in ("happened", "did_not"):
                self.verdicts[call] = dataclasses.replace(line, payload={"receipt": line.inner("receipt")})
            self.contradictions.pop(call, None)
        elif kind == "ToolAnsweredLate" and line["contradicts"]:
            self.contradictions[call] = line.seq
        elif kind == "WaitOpened" and line["wait"] == "reconcile" and self.status.get(call) == "failed":
            self.status[call] = "unknown"
            self.verdicts.pop(call, None)
        elif kind in _TO_STATUS and call in self.status:
            self.status[call] = _TO_STATUS[kind]
            self.results[call] = dataclasses.replace(line, payload=None)
            self.verdicts.pop(call, None)
            self.sends[call] = self.sends.get(call, 1) + {"ToolRedispatched": 1, "ToolNotDispatched": -1}.get(kind, 0)
            if kind == "ToolRedispatched" and line.clear.get("tries", 1) != 1:
                self.bursts.add(call)  # one event covers several tries under one key
        elif kind in _ENDS:
            self.state = _ENDS[kind]
        elif kind == "RunRetried":
            self.state = "not ended"
        elif kind == "ContentErased":
            self.erased = line

    def outcome(self, key: tuple[Any, int]) -> str:
        """Return a call's status; if its outcome was unknown and then settled, also by whom."""
        status, verdict = self.status[key], self.verdicts.get(key)
        if verdict is None or status not in ("done", "failed"):
            return status
        by = str(verdict["by"])
        source = f"as {'reported late' if by.startswith('worker:') else 'stated'} by {by}"
        if by == "hook":
            source = "as the upstream system answered when asked"
        return f"{'done' if status == 'done' else 'not done'}, {source}"

    def stated(self) -> list[tuple[Any, int]]:
        """Return the calls whose outcome a person stated."""
        return [
            key
            for key, line in self.verdicts.items()
            if line["by"] != "hook" and not str(line["by"]).startswith("worker:")
        ]

    def receipt(self, key: tuple[Any, int]) -> str:
        """Return the receipt given by the person who stated a call's outcome; empty if none."""
        receipt = self.verdicts[key].inner("receipt") if key in self.verdicts else None
        text = "" if receipt is None else without_digest("receipt", receipt)
        return text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)

    def sent(self, key: tuple[Any, int]) -> str:
        """Return as text how often a call was sent; empty if it was sent once."""
        count = self.sends.get(key, 1)
        return f"sent {count} times{' or more, under one key' if key in self.bursts else ''}" if count > 1 else ""

    def problem_of_grant(self, call: Call) -> str:
        """Return how a call differs from what was approved; empty if it doesn't."""
        slot, intent = call.line["grant"], call.line
        questions = [
            each for each in self.questions.values() if each.line["slot"] == slot and each.line.seq < intent.seq
        ]
        approved = [each for each in questions if self.is_approved(each, before=intent.seq)]
        if not approved or approved[-1] is not questions[-1]:
            return "nobody approved it before it was sent"
        question = approved[-1]
        if question.line["tool"] != intent["tool"]:
            return "another tool was approved"
        if question.arguments != call.arguments:
            return "other arguments were approved"
        if any(other.line["grant"] == slot and other.line["slot"] != intent["slot"] for other in self.calls.values()):
            return "its approval was used for another call as well"
        return self.lacking(question)

    def is_approved(self, question: Question, *, before: int) -> bool:
        line = question.line
        decision = self.decisions.get(line["approval_id"])
        return (
            decision is not None
            and decision["verdict"] == "approved"
            and decision["plan_hash"] == line["plan_hash"]
            and line.seq < decision.seq < before
        )

    def lacking(self, question: Question) -> str:
        """Return the problem with the approvals of the question's stages, according to its plan; empty if none."""
        stages = question.line.inner("stages")
        if not stages:
            return ""
        passed = [each["approval_id"] for each in question.line.inner("passed") or ()]
        ids, heard = [*passed, question.line["approval_id"]], set[Any]()
        if len(ids) != len(stages):
            return f"only {len(ids)} of {len(stages)} stages approved it"
        for n, approval_id in enumerate(ids):
            one = self.questions.get(approval_id)
            if one is None or one.arguments != question.arguments or not self.is_approved(one, before=2**63):
                return f"stage {n + 1} did not approve it"
            people: list[set[Any]] = []
            for vote in self.votes.get(approval_id, ()):
                if vote["verdict"] == "approve" and vote["plan_hash"] == one.line["plan_hash"]:
                    people.append({vote["person"], vote["principal"]} - {None})  # a deputy's vote counts for both
            if len(people) < stages[n]["quorum"] or any(each & heard for each in people):
                return f"stage {n + 1} lacks votes of different people"
            heard = heard.union(*people)
            if len(heard) < sum(map(len, people)):
                return f"stage {n + 1} has two votes of one person"
        return ""


def _digest(value: Any) -> bytes:
    return hashlib.sha256(canonical(value)).digest()


class RunCheck:
    """Checks one run of the bundle."""

    def __init__(self, bundle: Bundle, run_id: str, keys: Keys, report: Report, *, is_plain: bool = False) -> None:
        self.bundle, self.keys, self.report = bundle, keys, report
        self.run_id, self.folder = UUID(run_id), f"runs/{UUID(run_id)}/"
        name = self.folder + "key.json"
        key = unhex(bundle.json(name)["key"], 32) if name in bundle.members else None
        self.decoder = Decoder(self.run_id, key, is_plain=is_plain)
        self.facts = Facts()
        self.hashes: dict[int, str] = {}
        self.count, self.contents, self.by_hash, self.left_out, self.unread = 0, 0, 0, 0, 0
        self.head = hashlib.sha256(self.run_id.bytes).digest()
        self.problems = 0
        self.external_ids: dict[tuple[Any, Any], Any] = {}

    def check(self, expected: Any) -> None:
        """Check the run against its entry in the manifest."""
        rows = {name: [json.loads(line) for line in self.bundle.lines(self.folder + name)] for name in ROWS}
        self.external_ids = {
            (row["slot"], row["attempt"]): f"{without_digest('external id', row['external_id'])} [signed]"
            for row in rows["ledger.jsonl"]
            if row.get("external_id")
        }
        proofs = self.bundle.json(self.folder + "seals.json")["proofs"]
        wanted = {row.get("seq") for rows_of in rows.values() for row in rows_of} | {each["seq"] for each in proofs}
        self._events(wanted)
        if (self.count, self.head.hex()) != (expected["events"], expected["head"]) and not self.problems:
            self._bad(f"it has {self.count} events, but the manifest says {safe(expected['events'])}")
        if not self.problems:
            head = f"chain head {self.head.hex()[:16]}…"
            self.report.proven(f"{self.count} events: none missing, altered or out of order ({head})")
        self._contents()
        self._seals(proofs)
        for name, rows_of in rows.items():
            for row in rows_of:
                self._row(name, row)
        try:
            self._missing_checkpoints(rows["checkpoints.jsonl"])
        except MALFORMED as error:
            self._bad(f"checkpoints.jsonl: it can't be read: {safe(error, 100)}")
        self._approvals()
        self._calls()

    def _bad(self, text: str) -> None:
        self.problems += 1
        if self.problems <= 20:
            self.report.is_altered(f"run {self.run_id}: {text}")

    # --- events ---

    def _events(self, wanted: set[Any]) -> None:
        name = self.folder + "events.jsonl"
        for n, text in enumerate(self.bundle.lines(name), 1):
            try:
                self._event(json.loads(text), n, wanted)
            except MALFORMED as error:
                self._bad(f"event {n} ({name}, line {n}) can't be read: {safe(error, 100)}")
                return

    def _event(self, row: Any, n: int, wanted: set[Any]) -> None:
        seq, clear = row["seq"], row["clear"].encode("ascii")
        self.count = n
        digest = ZERO if row["stored_sha256"] is None else unhex(row["stored_sha256"], 32)
        numbers = struct.pack(">qqq", seq, row["epoch"], microseconds(row["at"]))
        body = hashlib.sha256(clear + digest).digest()
        link = hashlib.sha256(self.head + numbers + body).digest()
        if seq != n:
            self._bad(f"event {n} is missing: the next one is {safe(seq)}")
        if unhex(row["prev"], 32) != self.head:
            self._bad(f"event {safe(seq)} does not follow the event before it")
        if link.hex() != row["hash"]:
            self._bad(f"event {safe(seq)} was altered: its hash does not match its content")
        self.head = unhex(row["hash"], 32)
        if seq in wanted:
            self.hashes[seq] = row["hash"]
        is_hash = self._content(row, digest)
        self.facts.take(EventLine(seq, row["at"], json.loads(clear), row.get("payload"), is_hash))

    def _content(self, row: Any, digest: bytes) -> bool:
        """Check an event's content, and return whether the sealed bytes prove it."""
        if row["stored_sha256"] is None:
            if row.get("payload") is not None:
                self._bad(f"event {safe(row['seq'])} was altered: it has content that the hash chain does not cover")
            return True
        self.contents += 1
        if row.get("left_out"):
            self.left_out += 1
        stored = None if row.get("stored") is None else base64.b64decode(row["stored"], validate=True)
        if stored is not None and hashlib.sha256(stored).digest() != digest:
            self._bad(f"event {safe(row['seq'])} was altered: its stored bytes do not match their digest")
            return False
        if row.get("unreadable"):
            self.unread += 1
            return False
        if stored is None:
            return False
        if self.decoder.decrypt is None and b"\x02" in (stored[:1], stored[25:26] if stored[:1] == b"\x03" else b""):
            return False
        try:
            kept = None if row.get("kept") is None else base64.b64decode(row["kept"], validate=True)
            is_same = canonical(self.decoder.payload(stored, kept)) == canonical(row["payload"])
        except ValueError as error:
            self._bad(f"event {safe(row['seq'])}: its content can't be compared with its bytes: {safe(error, 100)}")
            return False
        if not is_same:
            self._bad(f"event {safe(row['seq'])} was altered: its content differs from its stored bytes")
            return False
        self.by_hash += 1
        return True

    def _contents(self) -> None:
        report = self.report
        if self.by_hash:
            report.proven(f"{self.by_hash} of {self.contents} contents match the sealed bytes")
        if other := self.contents - self.by_hash - self.unread:
            left = f", {self.left_out} of them with parts left out" if self.left_out else ""
            report.proven(f"{other} contents are only stated by the installation{left}", grade="signed")
        if self.unread:
            erased = self.facts.erased
            why = "their key is gone" if erased is None else f"erased by {safe(erased['by'])}, {minute(erased.at)}"
            report.not_proven(f"the content of {self.unread} events: {why}. Their digests remain")

    # --- seals ---

    def _seals(self, proofs: Any) -> None:
        covered = 0
        for proof in proofs:
            try:
                if self._proof(proof):
                    covered = max(covered, proof["seq"])
            except MALFORMED as error:
                self._bad(f"seals.json: a proof can't be read: {safe(error, 100)}")
        if covered == self.count and covered:
            self.report.proven("every event is covered by a seal")
        elif covered < self.count:
            self.report.not_proven(f"events {covered + 1} to {self.count} are not covered by a seal")

    def _proof(self, proof: Any) -> bool:
        seal, seq = proof["seal"], proof["seq"]
        what = f"seal {safe(seal['number'])}"
        public = self.keys.public.get(seal["key"])
        if public is None or not is_signature(public, unhex(seal["signature"], 64), seal_message(seal)):
            self._bad(f"seals.json: {what} was not signed with {self.keys.name(seal['key'])}")
            return False
        leaf = self.run_id.bytes + struct.pack(">q", seq) + unhex(proof["hash"], 32)
        path = [unhex(each, 32) for each in proof["path"]]
        if root_from_path(leaf, proof["index"], seal["count"], path) != unhex(seal["root"], 32):
            self._bad(f"seals.json: the proof for event {safe(seq)} does not lead to {what}")
            return False
        if self.hashes.get(seq) != proof["hash"]:
            self._bad(f"event {safe(seq)} differs from the one sealed in {what}")
            return False
        self.report.proven(f"events 1 to {seq} existed when {what} was signed, {minute(seal['at'])}")
        return True

    # --- tables outside the journal ---

    def _row(self, name: str, row: Any) -> None:
        try:
            problem = _ROW_CHECKS[name](self, row)
        except MALFORMED:
            problem = "it can't be read"
        if problem:
            self._bad(f"{name}: row {safe(row.get('id') if isinstance(row, dict) else '?')}: {problem}")

    def _state_problem(self, row: Any) -> str:
        """Return a problem if the event hash that a row names isn't the journal's; empty if it is."""
        seq, chain = row.get("seq"), row.get("chain")
        if seq is None or chain is None:
            return ""
        right = hashlib.sha256(self.run_id.bytes).hexdigest() if seq == 0 else self.hashes.get(seq)
        return "" if chain == right else f"it names a hash of event {safe(seq)} that the journal doesn't have"

    def decision_problem(self, row: Any) -> str:
        facts, approval_id = self.facts, row["approval"]
        votes = facts.votes.get(approval_id, [])
        decisions = [*([facts.decisions[approval_id]] if approval_id in facts.decisions else []), *votes]
        verdicts = {
            row["verdict"],
            {"approve": "approved", "reject": "rejected", "fail": "rejected"}.get(row["verdict"]),
        }
        if approval_id not in facts.questions:
            return "it decides a question that the journal doesn't have"
        fits = [
            each
            for each in decisions
            if each["by"] == row["by"] and each["plan_hash"] == row["plan_hash"] and each["verdict"] in verdicts
        ]
        if not fits and not (row["verdict"] == "amend" and approval_id in facts.amended):
            return "no event of the journal says so"
        return self._state_problem(row)

    def entry_problem(self, row: Any) -> str:
        return "" if 1 <= row["seq"] <= self.count else f"it names event {safe(row['seq'])}, which does not exist"

    def other_problem(self, row: Any) -> str:
        return self._state_problem(row)

    def _missing_checkpoints(self, rows: Any) -> None:
        """Report the states whose digests are not in the bundle, first those that a retention policy removed."""
        kept = {row.get("seq") for row in rows}
        missing = [seq for seq in self.facts.entered if seq not in kept]
        for row in (row for row in rows if "expired_up_to" in row):
            expired = [seq for seq in missing if seq <= row["expired_up_to"]]
            missing = missing[len(expired) :]
            why = f"expired by policy {safe(row['policy'])}, {minute(row['at'])}"
            self.report.not_proven(f"the state at {len(expired)} node entries: their checkpoints {why}")
            if len(expired) != row["number"]:
                self.report.not_proven(f"why they are gone: the installation recorded {safe(row['number'])} as expired")
        if missing:
            self.report.not_proven(
                f"the state at {len(missing)} node entries: the checkpoint of event {missing[0]} is missing"
            )

    # --- approvals and calls ---

    def _approvals(self) -> None:
        for n, question in enumerate(self.facts.questions.values(), 1):
            line = question.line
            title = without_digest("title", line.inner("title"))
            if title == line.inner("title"):
                title = f'"{safe(title or line["tool"] or "a question", 100)}"'
            self.report.say(f"  Approval {n}: {title}{_amount(line)}, queue {safe(line['queue'])}, event {line.seq}")
            for vote in self.facts.votes.get(line["approval_id"], ()):
                self.report.say(f"    vote: {_actor_text(vote)}")
            decision = self.facts.decisions.get(line["approval_id"])
            self.report.say(f"    {_actor_text(decision)}" if decision else "    not decided")

    def _calls(self) -> None:
        facts, report = self.facts, self.report
        for key, call in facts.calls.items():
            if call.line["grant"]:
                self._approved_call(key, call)
        free = sum(1 for call in facts.calls.values() if not call.line["grant"])
        if free:
            report.say(f"  {free} further calls were sent; no approval was needed for them.")
        again = [key for key, call in facts.calls.items() if not call.line["grant"] and facts.sent(key)]
        for key in again[:20]:
            report.say(f"    {self._name(key)}: {facts.sent(key)}")
        if stated := facts.stated():
            report.say(f"  {len(stated)} outcome(s) are what people stated after they were unknown:")
        for key in stated[:20]:
            verdict = facts.verdicts[key]
            given = self.external_ids.get(key) or facts.receipt(key)
            text = f"{facts.outcome(key)}, event {verdict.seq}, {minute(verdict.at)}{f': {given}' if given else ''}"
            report.say(f"    {self._name(key)}: {safe(text)}")
        if facts.state == "not ended":
            report.not_proven("how the run ends: it had not ended when the bundle was made")
        opened = [key for key, status in facts.status.items() if status in _UNSETTLED]
        for slot, attempt in opened[:20]:
            status, line = facts.status[slot, attempt], facts.calls[slot, attempt].line
            report.not_proven(f"the outcome of {safe(line['tool'])}, event {line.seq}: {status}")
        for seq in facts.contradictions.values():
            report.not_proven(f"an outcome: a late result, event {seq}, contradicts the record")
        if facts.calls and not opened:
            by_people = f" ({len(stated)} as stated by people)" if stated else ""
            report.proven(f"no call has an unknown outcome{by_people}")
        report.say(f"  State: {facts.state}.")

    def _name(self, key: tuple[Any, int]) -> str:
        line = self.facts.calls[key].line if key in self.facts.calls else self.facts.verdicts[key]
        return f"{safe(line['tool'])}, event {line.seq}"

    def _approved_call(self, key: tuple[Any, int], call: Call) -> None:
        line, report = call.line, self.report
        lines = [q.line for q in self.facts.questions.values() if q.line["slot"] == line["grant"]]
        what = f"{safe(line['tool'])}, event {line.seq}, {minute(line.at)}"
        if not isinstance(line.payload, dict) or "arguments" not in line.payload:
            report.not_proven(f"that {what}, sent what was approved: its content is not in this bundle")
        elif problem := self.facts.problem_of_grant(call):
            report.not_proven(f"that {what}, sent what was approved: {problem}")
        else:
            is_hash = line.is_hash and all(each.is_hash for each in lines)
            grade = "hash" if is_hash else "signed"
            report.proven(f"{what}, sent exactly the approved arguments:", grade=grade)
        report.say(f"    {safe(json.dumps(line.inner('arguments'), ensure_ascii=False), 2000)}")
        if (result := self.facts.verdicts.get(key) or self.facts.results.get(key)) is not None:
            named = result["external_id"] or self.external_ids.get(key)
            external = f", external id {safe(named)}" if named else ""
            outcome = safe(self.facts.outcome(key))
            report.say(f"    outcome: {outcome}, event {result.seq}, {minute(result.at)}{external}")
        if times := self.facts.sent(key):
            report.say(f"    {times}")


ROWS = ("decisions.jsonl", "overrides.jsonl", "ledger.jsonl", "checkpoints.jsonl")
_ROW_CHECKS: dict[str, Callable[[RunCheck, Any], str]] = {
    "decisions.jsonl": RunCheck.decision_problem,
    "overrides.jsonl": RunCheck.other_problem,
    "ledger.jsonl": RunCheck.entry_problem,
    "checkpoints.jsonl": RunCheck.other_problem,
}


def _actor_text(line: EventLine) -> str:
    why = line.inner("justification")
    role = f" as {safe(line['role'])}" if line["role"] else ""
    because = f': "{safe(why, 200)}"' if isinstance(why, str) else ""
    return f"{safe(line['verdict'])} by {safe(line['by'])}{role}, {minute(line.at)}, event {line.seq}{because}"


def _amount(line: EventLine) -> str:
    amount = line.inner("amount")
    if not isinstance(amount, dict) or "value" not in amount:
        return ""
    value, currency = (without_digest(name, amount.get(name, "")) for name in ("value", "currency"))
    return f", {safe(value)} {safe(currency)}"


# --- the whole bundle -------------------------------------------------------------------------------------------------


class TrustedInput(NamedTuple):
    """Keys and seals that the person verifying got from another source."""

    keys: list[bytes]
    witnesses: list[Path]
    is_plain: bool = False


def check_bundle(bundle: Bundle, trusted_input: TrustedInput, report: Report) -> Any:
    """Check everything in a bundle; return its manifest. Raises Refused."""
    manifest = _manifest(bundle, report)
    for entry in manifest["files"]:
        _file(bundle, entry, report)
    try:
        keys = Keys(bundle.json("keys.json"), trusted_input.keys, report)
    except MALFORMED as error:
        raise Refused(f"keys.json was altered: {safe(error, 100)}") from None
    signature = bundle.json(SIGNATURE)
    if keys.public.get(signature["key"]) != unhex(signature["public_key"], 32):
        report.is_altered(f"{SIGNATURE}: it names a key that is not in keys.json")
    for run in manifest["runs"]:
        _run(bundle, run, keys, trusted_input, report)
    _trust(bundle, manifest, signature["key"], keys, trusted_input, report)
    return manifest


def _manifest(bundle: Bundle, report: Report) -> Any:
    content, manifest, signature = bundle.read(MANIFEST), bundle.json(MANIFEST), bundle.json(SIGNATURE)
    try:
        if manifest["format"] != FORMAT:
            raise Refused(f"this program reads {FORMAT!r}, and the bundle says {safe(manifest['format'], 60)!r}")
        message = FORMAT.encode() + hashlib.sha256(content).digest()
        if not is_signature(unhex(signature["public_key"], 32), unhex(signature["signature"], 64), message):
            report.is_altered(f"{MANIFEST} or {SIGNATURE}: the signature does not match")
        names = [*(entry["name"] for entry in manifest["files"]), MANIFEST, SIGNATURE]
        runs = [str(UUID(run["id"])) for run in manifest["runs"]]
        if type(signature["key"]) is not int or any(type(entry["sha256"]) is not str for entry in manifest["files"]):
            raise ValueError("a value has the wrong type")
        made = f"{safe(manifest['made_at'], 40)} by {safe(manifest['by'], 80)}"
    except MALFORMED as error:
        raise Refused(f"{MANIFEST} or {SIGNATURE} was altered: {safe(error, 100)}") from None
    present = list(bundle.members)
    for name in [each for each in names if each not in bundle.members]:
        report.is_altered(f"{safe(name)} is missing")
    for name in [each for each in present if each not in names]:
        report.is_altered(f"{safe(name)} is not in the manifest: it was added")
    if names != present and set(names) == set(present):
        report.is_altered("the files are in another order than in the manifest: the bundle was zipped again")
    for run_id in {name.split("/")[1] for name in present if name.startswith("runs/")} - set(runs):
        report.is_altered(f"run {safe(run_id)} is not in the manifest: bundles were mixed")
    report.say(f"Bundle of {len(runs)} run(s), made {made}.")
    if manifest.get("left_out"):
        report.say(f"Left out on request: {safe(', '.join(map(str, manifest['left_out'])))}.")
    return manifest


def _file(bundle: Bundle, entry: Any, report: Report) -> None:
    name = entry["name"]
    if name not in bundle.members:
        return
    digest, crc = bundle.digest(name)
    if digest != entry["sha256"]:
        report.is_altered(f"{safe(name)}: it is not the file that the manifest names")
    elif crc != bundle.members[name].crc:
        report.is_altered(f"{safe(name)}: its checksum in the ZIP file was altered")


def _run(bundle: Bundle, run: Any, keys: Keys, trusted_input: TrustedInput, report: Report) -> None:
    folder = f"runs/{UUID(run['id'])}/"
    try:
        about = bundle.json(folder + "run.json")
        agent, by = f"{safe(about['agent'])}@{safe(about['version'])}", safe(about["created_by"])
        report.say(f"\nRun {UUID(run['id'])}: {agent}, started {minute(about['created_at'])} by {by}")
        RunCheck(bundle, run["id"], keys, report, is_plain=trusted_input.is_plain).check(run)
    except MALFORMED as error:
        report.is_altered(f"{folder} can't be read: {safe(error, 100)}")
    except Refused as error:
        report.is_altered(str(error))


def _trust(bundle: Bundle, manifest: Any, signer: Any, keys: Keys, trusted_input: TrustedInput, report: Report) -> None:
    """Report whether the signatures were made with the installation's keys."""
    report.say("\nSignatures:")
    used = {signer}
    proofs = []
    for run in manifest["runs"]:
        name = f"runs/{UUID(run['id'])}/seals.json"
        proofs += [(run["id"], each) for each in bundle.json(name)["proofs"]] if name in bundle.members else []
    used |= {proof["seal"]["key"] for _, proof in proofs}
    for number in sorted(used):
        if number in keys.trusted:
            report.proven(f"{keys.name(number)} is the key you gave, or a successor of it")
        elif keys.is_given:
            report.not_proven(f"{keys.name(number)} is not the key you gave")
        else:
            report.say(
                f"  {keys.name(number)}. Compare it with the key that the operator gave you through another channel."
            )
    for path in trusted_input.witnesses:
        _witness(path, proofs, report)


def _witness(path: Path, proofs: list[tuple[str, Any]], report: Report) -> None:
    """Compare the seals with the copy of a witness, which the installation could not change."""
    wanted = {proof["seal"]["number"]: proof["seal"] for _, proof in proofs}
    found: set[int] = set()
    with path.open("rb") as file:
        while text := file.readline(MAX_LINE):
            try:
                line = json.loads(text)
                number = line["number"]
                own = {name: line[name] for name in ("number", "at", "key", "previous", "root", "count", "signature")}
            except MALFORMED:
                continue  # A line may be cut off by a crash. In that case the next line repeats it.
            if number in wanted and number not in found:
                found.add(number)
                if own != {name: wanted[number][name] for name in own}:
                    report.is_altered(f"seal {number}: the witness {safe(path)} has a different one")
    for number in sorted(set(wanted) - found):
        report.not_proven(f"seal {number} is not in the witness's copy {safe(path)}")
    if wanted and found == set(wanted) and not report.altered:
        report.proven(f"the witness's copy {safe(path)} has the same seals", grade="witness")


# --- what was left out ------------------------------------------------------------------------------------------------


def check_left_out(redacted: Bundle, full: Bundle, manifest: Any, report: Report) -> None:
    """Check that the values left out of a redacted bundle match those in the full one. Raises Refused."""
    report.say("\nLeft out, compared with the full bundle:")
    for run in manifest["runs"]:
        folder = f"runs/{UUID(run['id'])}/"
        if folder + "left_out.json" not in full.members:
            report.not_proven(f"the values left out of run {run['id']}: the full bundle does not contain that run")
            continue
        key = unhex(full.json(folder + "left_out.json")["key"], 32)
        pairs = _same_events(redacted.lines(folder + "events.jsonl"), full.lines(folder + "events.jsonl"))
        count = problems = 0
        for row, other in pairs:
            for pointer, digest in (row.get("left_out") or {}).items():
                count += 1
                if row["hash"] != other["hash"] or left_out_digest(key, other.get("payload"), pointer) != digest:
                    problems += 1
                    report.is_altered(
                        f"run {run['id']}, event {row['seq']}: {safe(pointer)} has a different value in the full bundle"
                    )
        if not problems:
            report.proven(f"run {run['id']}: {count} values left out match the full bundle", grade="signed")


def _same_events(some: Iterator[bytes], others: Iterator[bytes]) -> Iterator[tuple[Any, Any]]:
    for text in some:
        yield json.loads(text), json.loads(next(others, b'{"hash": null}'))


def left_out_digest(key: bytes, payload: Any, pointer: str = "") -> str:
    """Return the keyed digest of the value at a JSON pointer (RFC 6901); by default of the whole payload."""
    value = payload
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else value[name]
    return hmac.new(key, canonical(value), hashlib.sha256).hexdigest()


# --- the command ------------------------------------------------------------------------------------------------------


def read_key(text: str) -> bytes:
    """Read a public key: 64 hex digits, or a file that contains them. Raises Refused."""
    try:
        given = text if len(text) == 64 and "/" not in text else Path(text).read_text(encoding="ascii").strip()
        return unhex(given, 32)
    except (OSError, ValueError, binascii.Error):
        raise Refused(
            f"--key {safe(text, 80)}: give the 64 hex digits of a public key, or a file that contains them"
        ) from None


def main(arguments: list[str], write: Callable[[str], object] = sys.stdout.write) -> int:
    """Verify a bundle; return the exit code."""
    parser = argparse.ArgumentParser(description="Verify an evidence bundle.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--key", action="append", default=[], help="the operator's public key, which you got elsewhere")
    parser.add_argument("--witness", action="append", default=[], type=Path, help="a witness's copy of the seals")
    parser.add_argument("--full", type=Path, help="the full bundle of a redacted one: compares what was left out")
    parser.add_argument("--plain", action="store_true", help="use no library, only this program")
    given = parser.parse_args(arguments)
    report = Report(write)
    try:
        trusted_input = TrustedInput([read_key(each) for each in given.key], given.witness, given.plain)
        with given.bundle.open("rb") as file:
            bundle = Bundle(file)
            manifest = check_bundle(bundle, trusted_input, report)
            if given.full is not None:
                with given.full.open("rb") as other:
                    full = Bundle(other)
                    unheard = Report(lambda text: None)
                    check_bundle(full, trusted_input, unheard)
                    for problem in unheard.altered:
                        report.is_altered(f"the full bundle: {problem}")
                    check_left_out(bundle, full, manifest, report)
    except Refused as error:
        report.say(f"REFUSED: {error}")
        return 2
    except OSError as error:
        report.say(f"REFUSED: {safe(error.filename)} can't be read: {error.strerror}")
        return 2
    except MALFORMED as error:
        report.is_altered(f"the bundle can't be read further: {safe(error, 100)}")
    report.say("")
    if report.altered:
        report.say(
            f"RESULT: ALTERED. {len(report.altered)} problem(s), see above. Do not trust anything in this bundle."
        )
        return 2
    if report.unproven:
        report.say(f"RESULT: nothing was altered; {len(report.unproven)} statement(s) are not proven, see above.")
        return 1
    report.say("RESULT: everything above is proven.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
