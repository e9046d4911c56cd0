"""A push service and its devices: takes messages over real TLS and decrypts them by the RFCs, without product code."""

from __future__ import annotations

import base64
import datetime
import json
import secrets
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class Browser:
    endpoint: str
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    auth: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    @property
    def public(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    @property
    def body(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "p256dh": b64(self.public), "auth": b64(self.auth)}

    def read(self, sealed: bytes) -> bytes:
        """Decrypt by RFC 8291, § 3.4, and RFC 8188, § 2. Raises on any deviation."""
        salt, size, length = sealed[:16], int.from_bytes(sealed[16:20], "big"), sealed[20]
        theirs, record = sealed[21 : 21 + length], sealed[21 + length :]
        assert len(record) <= size
        shared = self.key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs))
        secret = _hkdf(shared, self.auth, b"WebPush: info\x00" + self.public + theirs, 32)
        key, nonce = (
            _hkdf(secret, salt, b"Content-Encoding: " + what + b"\x00", n)
            for what, n in ((b"aes128gcm", 16), (b"nonce", 12))
        )
        plain = AESGCM(key).decrypt(nonce, record, None).rstrip(b"\x00")
        assert plain[-1] == 2  # the last record
        return plain[:-1]


def _hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt=salt, info=info).derive(secret)


@dataclass
class Service:
    """The received messages. `answers` are the status and headers of the next answers, then 201."""

    url: str = ""
    came: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)

    def device(self, name: str = "") -> Browser:
        return Browser(f"{self.url}/push/{name or secrets.token_hex(8)}")

    def told(self, browser: Browser) -> list[dict[str, Any]]:
        path = browser.endpoint.removeprefix(self.url)
        return [json.loads(browser.read(body)) for where, _, body in self.came if where == path]


def claims_of(header: str) -> tuple[dict[str, Any], str]:
    """Return the claims of `Authorization: vapid` after checking its signature by the key it carries (RFC 8292)."""
    kind, _, rest = header.partition(" ")
    assert kind == "vapid"
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    head, body, signature = parts["t"].split(".")
    assert json.loads(unb64(head)) == {"typ": "JWT", "alg": "ES256"}
    raw = unb64(signature)
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), unb64(parts["k"]))
    public.verify(der, f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
    return json.loads(unb64(body)), parts["k"]


def certificate(folder: Path) -> tuple[Path, Path]:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert, private = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return cert, private


Answer = tuple[int, dict[str, str]]


@contextmanager
def http_server(
    take: Callable[[str, dict[str, str], bytes], Answer], context: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Run a server that answers each POST with the status and headers from `take`; yield its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, headers = take(self.path, dict(self.headers), body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def push_service(folder: Path) -> Iterator[tuple[Service, Path]]:
    cert, private = certificate(folder)
    service = Service()

    def take(path: str, headers: dict[str, str], body: bytes) -> Answer:
        service.came.append((path, headers, body))
        return service.answers.pop(0) if service.answers else (201, {})

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, private)
    with http_server(take, context) as port:
        service.url = f"https://localhost:{port}"
        yield service, cert
