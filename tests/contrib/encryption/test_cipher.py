"""An encrypted payload is read by nothing but its run's key, and master keys come from where the setting says."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from durableagents import secret_sources
from durableagents.contrib.encryption import master_keys
from durableagents.contrib.encryption.master_keys import KeyUnavailable, MasterKey
from durableagents.contrib.encryption.run_keys import RunKeys, _Key, unwrap, wrap
from ledger import codec, contents
from ledger.contents import MARK, UNREADABLE
from tests.cases import each_case

SECRET = base64.urlsafe_b64encode(bytes(range(32))).decode().rstrip("=")


def knowing(*run_ids: UUID) -> RunKeys:
    keys = RunKeys()
    for run_id in run_ids:
        keys._keep(run_id, _Key(AESGCM.generate_key(256)))
    return keys


@pytest.fixture
def run_id() -> Iterator[UUID]:
    """Return a run whose key only this process knows."""
    run_id = uuid4()
    keys = knowing(run_id)
    before = codec._cipher
    codec.use_cipher(keys)
    yield run_id
    codec.use_cipher(before)


@each_case("payload", ["", "x", {"iban": "DE02"}, ["word " * 1000], 0, False])
def test_a_payload_is_not_readable_and_comes_back(run_id: UUID, payload: Any) -> None:
    packed = codec.pack(payload, run_id)
    assert packed is not None and packed[:1] == codec.ENCRYPTED
    assert codec.unpack(packed) == payload
    assert packed != codec.pack(payload, run_id)  # a nonce is used once
    assert codec.size_of(packed) == codec.size_of(codec.pack(payload, None) or b"")


def test_a_change_of_any_byte_is_refused(run_id: UUID) -> None:
    packed = codec.pack({"amount": 84_000}, run_id) or b""
    for place in range(1, len(packed)):
        changed = packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :]
        if place in range(9, 25):
            continue  # another run: below
        with pytest.raises(ValueError, match="was changed"):
            codec.unpack(changed)
    for length in range(1, len(packed)):
        with pytest.raises(ValueError, match=r"cut off|was changed"):
            codec.unpack(packed[:length])


def test_a_payload_moved_to_another_run_is_refused(run_id: UUID) -> None:
    codec.use_cipher(knowing(run_id, other := uuid4()))
    packed = codec.pack({"amount": 84_000}, run_id) or b""
    with pytest.raises(ValueError, match="was changed, or belongs to another run"):
        codec.unpack(packed[:9] + other.bytes + packed[25:])


def test_the_head_of_a_large_payload_is_read_from_the_head_of_its_bytes(run_id: UUID) -> None:
    text = base64.b64encode(os.urandom(2 * codec.MAX_STORED_HEAD)).decode()
    in_clear, packed = codec.pack([text], None) or b"", codec.pack([text], run_id) or b""
    (visible,) = codec.unpack_head(packed[: codec.MAX_STORED_HEAD], len(packed))
    (expected,) = codec.unpack_head(in_clear)
    assert visible == expected and text.startswith(visible) and visible.size == expected.size
    assert codec.unpack_head(packed) == [expected]


def test_clear_content_that_looks_encrypted_comes_back_as_it_was(run_id: UUID) -> None:
    for text in (MARK, MARK + "AgAA", MARK + MARK + "x", "plain", ""):
        assert contents.text_in(contents.stored_text(text, None)) == text
        assert contents.json_in(contents.stored_json(text, None)) == text
        assert contents.text_in(contents.stored_text(text, run_id)) == text
    for damaged in (MARK + "AgAA", MARK + "!", MARK + "Ag" + "A" * 80):
        assert contents.readable_text(damaged) == UNREADABLE


def test_without_the_app_an_encrypted_payload_is_refused_by_name(run_id: UUID) -> None:
    packed = codec.pack("x", run_id)
    codec.use_cipher(None)
    with pytest.raises(ValueError, match="is encrypted, and this installation has no app to decrypt it"):
        codec.unpack(packed)


def test_a_run_s_key_is_bound_to_the_run_and_its_master_key() -> None:
    one, other = MasterKey("a", bytes(32)), MasterKey("b", bytes(31) + b"\x01")
    run_id, secret = uuid4(), bytes(range(32))
    wrapped = wrap(one, run_id, secret)
    assert unwrap(one, run_id, wrapped) == secret and secret not in wrapped
    for master, run in ((other, run_id), (one, uuid4())):
        with pytest.raises(ValueError, match=f"The record of run {run} lacks the key of its payloads"):
            unwrap(master, run, wrapped)


# --- master keys ------------------------------------------------------------------------------------------------------


@pytest.fixture
def keys_are(settings: Any) -> Any:
    def set_to(*sources: str) -> None:
        settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"encryption_keys": list(sources)})
        master_keys.forget()

    yield set_to
    master_keys.forget()


def test_each_source_gives_its_key(keys_are: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text(SECRET + "\n")
    monkeypatch.setenv("PAYLOAD_KEY", SECRET)
    for source in (f"file:{tmp_path / 'key'}", "env:PAYLOAD_KEY", f"command:cat {tmp_path / 'key'}"):
        keys_are(source)
        found = master_keys.current()
        assert found is not None and found.secret == bytes(range(32))
        assert master_keys.find(found.id) == found
        assert SECRET not in repr(found)
    keys_are("master")
    derived = master_keys.current()
    assert derived is not None and len(derived.secret) == 32
    keys_are("none")
    assert master_keys.current() is None
    assert master_keys.find(derived.id) == derived  # it decrypts also when the setting doesn't name it


@each_case(
    ("source", "problem"),
    [
        ("file:/nowhere/key", "can't be read: /nowhere/key: No such file or directory"),
        ("file:{short}", "holds 3 bytes: 32 bytes in base64url are expected"),
        ("file:{strange}", "holds no key: 32 bytes in base64url are expected"),
        ("file:", "an entry is not a key source; write master, file:PATH, env:NAME, command:COMMAND or https:"),
        ("c2VjcmV0LWFuZC12ZXJ5LXByaXZhdGUtbWF0dGVyLW8", "an entry is not a key source"),
        ("master:x", "an entry is not a key source"),
        ("env:NOT_SET_ANYWHERE", "is not set in the environment"),
        ("command:/nowhere/kms", "can't be run: "),
        ("command:'", "can't be run: "),
        ("command:sh -c 'echo denied >&2; exit 3'", "ended with 3: denied"),
        ("command:sleep 5", "gave no answer within 0.2 s"),
    ],
)
def test_a_key_that_can_t_be_had_is_named(
    keys_are: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, problem: str
) -> None:
    (tmp_path / "short").write_text("AAAA")
    (tmp_path / "strange").write_text("no key, but a sentence")
    monkeypatch.setattr(secret_sources, "COMMAND_SECONDS", 0.2)
    source = source.format(short=tmp_path / "short", strange=tmp_path / "strange")
    keys_are(source)
    with pytest.raises(KeyUnavailable) as refused:
        master_keys.current()
    text = str(refused.value)
    assert text.startswith("DURABLEAGENTS_ENCRYPTION_KEYS: ") and problem in text
    assert "a sentence" not in text and "c2Vj" not in text and "denied >&2" not in text


@pytest.fixture
def service() -> Iterator[tuple[str, list[Any], list[Any]]]:
    """A key service on this host: its address, what it answers in turn, what it got."""
    answers: list[Any] = []
    got: list[Any] = []
    release = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers["Authorization"], json.loads(body)))
            status, answer = answers.pop(0)
            if answer is None:
                release.wait(20)
                return
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            for part in answer if isinstance(answer, list) else [answer]:
                self.wfile.write(part)
                self.wfile.flush()
                if isinstance(answer, list) and release.wait(0.1):
                    return

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/decrypt", answers, got
    release.set()
    http.shutdown()
    thread.join()
    http.server_close()


def test_key_service_is_asked_with_the_wrapped_key_and_its_failures_are_named(
    keys_are: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: tuple[str, list[Any], list[Any]]
) -> None:
    address, answers, got = service
    (tmp_path / "wrapped").write_bytes(b"\x01ciphertext")
    (tmp_path / "token").write_text("t0ken\n")
    source = f"{address}#wrapped={tmp_path / 'wrapped'}&token={tmp_path / 'token'}"
    plain = base64.b64encode(b"\xfb\xff" * 16).decode()
    keys_are(source)
    answers.append((200, json.dumps({"Plaintext": plain, "KeyId": "arn"}).encode()))
    found = master_keys.current()
    assert found is not None and found.secret == b"\xfb\xff" * 16
    assert got == [("Bearer t0ken", {"CiphertextBlob": base64.b64encode(b"\x01ciphertext").decode()})]

    monkeypatch.setattr(secret_sources, "COMMAND_SECONDS", 0.5)
    for answer, problem in (
        ((403, b'{"Plaintext": "secret"}'), "answered 403"),
        ((302, b""), "answered 302"),
        ((200, None), "gave no answer within 0.5 s"),
        ((200, [b"{"] * 1000), "gave no answer within 0.5 s"),
        ((200, b"<html>"), "did not answer with JSON"),
        ((200, b'{"Plaintext": 5}'), "did not answer with JSON"),
        ((200, b"[" * 50_000), "did not answer with JSON"),
        ((200, b'{"Plaintext": "c2VjcmV0"}'), "holds 6 bytes"),
        ((200, b"x" * 100_000), "answered more than"),
    ):
        keys_are(source)
        answers.append(answer)
        began = time.monotonic()
        with pytest.raises(KeyUnavailable, match=problem) as refused:
            master_keys.current()
        assert time.monotonic() - began < 2.0, problem
        text = str(refused.value)
        assert f"'{address}' " in text and "t0ken" not in text and "c2Vj" not in text and "wrapped=" not in text
    for wrong, problem in (
        ("http://127.0.0.1:9/decrypt#wrapped={wrapped}", "can't be reached: ConnectionRefused"),
        ("https://127.0.0.1:x/decrypt#wrapped={wrapped}", "names no file with the wrapped key"),
        ("https://kms.example.org/decrypt", "names no file with the wrapped key"),
        ("https://kms.example.org/decrypt#wrapped=/nowhere/key", "/nowhere/key: No such file"),
        ("http://kms.example.org/decrypt#wrapped={wrapped}", "would send the key in the clear"),
    ):
        keys_are(wrong.format(wrapped=tmp_path / "wrapped"))
        with pytest.raises(KeyUnavailable, match=problem):
            master_keys.current()


def test_a_source_that_is_away_hides_no_other(keys_are: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(SECRET)
    keys_are(f"file:{tmp_path / 'key'}")
    key = master_keys.current()
    assert key is not None
    keys_are("file:/nowhere/key", f"file:{tmp_path / 'key'}")
    assert master_keys.find(key.id) == key
    with pytest.raises(KeyUnavailable, match="/nowhere/key"):
        master_keys.find("0" * 16)
    keys_are("master")
    with pytest.raises(KeyUnavailable, match=f"{key.id} is missing from DURABLEAGENTS_ENCRYPTION_KEYS"):
        master_keys.find(key.id)
