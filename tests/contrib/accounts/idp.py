"""A small OpenID Connect provider on a real socket, which signs what it is told to, lies included."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT, SECRET = "durable", "a secret between the two"


@dataclass
class Idp:
    """`claims` describes who is signed in there; `lies` names what is wrong in its answers."""

    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "248289761001"})
    lies: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    key: Any = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    other_key: Any = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    curve: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def configuration(self, request: Request) -> Response:
        if "configuration" in self.lies:
            return self.lies["configuration"]()  # type: ignore[no-any-return]
        return JSONResponse(
            {
                "issuer": self.lies.get("its_name", self.issuer),
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
            }
        )

    def authorize(self, request: Request) -> Response:
        fields = dict(request.query_params)
        code = secrets.token_urlsafe(12)
        self.codes[code] = fields
        back = {"code": code, "state": fields["state"]}
        if "refuses" in self.lies:
            back = {"error": "access_denied", "state": fields["state"]}
        return RedirectResponse(f"{fields['redirect_uri']}?{urlencode(back)}")

    async def token(self, request: Request) -> Response:
        given = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        value = self.codes.pop(given.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(given.get("code_verifier", "").encode()).digest())
        if (
            value is None
            or (given.get("client_id"), given.get("client_secret")) != (CLIENT, SECRET)
            or given.get("redirect_uri") != value["redirect_uri"]
            or value.get("code_challenge_method") != "S256"
            or challenge.rstrip(b"=").decode() != value["code_challenge"]
        ):
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        if "token" in self.lies:
            return self.lies["token"]()  # type: ignore[no-any-return]
        answer = {"access_token": "opaque", "token_type": "Bearer", "id_token": self.id_token(value["nonce"])}
        return JSONResponse({**answer, **self.lies.get("answer", {})})

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        fields = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce, **self.claims}
        fields = {name: value for name, value in {**fields, **self.lies.get("claims", {})}.items() if value is not None}
        how = {"key": self.key, "algorithm": "RS256", "headers": {"kid": "one"}, **self.lies.get("signing", {})}
        return jwt.encode(fields, **how)

    def keys(self, request: Request) -> Response:
        if "keys" in self.lies:
            return self.lies["keys"]()  # type: ignore[no-any-return]
        jwk = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        curve = jwt.algorithms.ECAlgorithm.to_jwk(self.curve.public_key(), as_dict=True)
        return JSONResponse(
            {"keys": [{**jwk, "kid": "one", "use": "sig", "alg": "RS256"}, {**curve, "kid": "two", "use": "sig"}]}
        )

    @property
    def public_pem(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        found: bytes = self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return found


def forged_without_signature(claims: dict[str, Any]) -> str:
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in parts) + "."


def signed_with_the_public_key(pem: bytes, claims: dict[str, Any]) -> str:
    """Return a token signed HS256 with the public key (RFC 8725, 2.1), which PyJWT refuses to make."""
    import hmac

    parts = ({"alg": "HS256", "kid": "one", "typ": "JWT"}, claims)
    text = ".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in parts)
    mark = hmac.new(pem, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(mark).rstrip(b'=').decode()}"


@contextmanager
def serving() -> Iterator[Idp]:
    found = Idp()
    app = Starlette(
        routes=[
            Route("/.well-known/openid-configuration", found.configuration),
            Route("/authorize", found.authorize),
            Route("/token", found.token, methods=["POST"]),
            Route("/keys", found.keys),
            Route("/huge", lambda request: PlainTextResponse("x" * 2_000_000)),
        ]
    )
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    started = threading.Event()
    plain = server.startup

    async def startup(*args: Any, **kwargs: Any) -> None:
        await plain(*args, **kwargs)
        started.set()

    server.startup = startup  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, name="idp")
    thread.start()
    try:
        assert started.wait(20)
        port = server.servers[0].sockets[0].getsockname()[1]
        found.issuer = f"http://127.0.0.1:{port}"
        yield found
    finally:
        server.should_exit = True
        thread.join(20)
