"""Sign-in by OpenID Connect: the authorization code flow with PKCE.

Imported only when used, because workers don't need the libraries.
"""

# django-allauth's view and adapter provide discovery, one-time state, PKCE and the exchange of the code. This module
# adds the nonce, checks the token's signature by the issuer's published keys with named algorithms, and checks that the
# issuer is the configured one rather than the one that its document claims. allauth's processing is stopped before it
# looks up an account (provider_links.py does that).

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import jwt
import requests
from allauth.core.context import request_context
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from durableagents.providers import OidcProvider
from ledger.errors import DurableAgentsError

# Algorithms with a shared secret are excluded, so that a public key is never used as a shared secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_SECONDS = 60
MAX_SUBJECT_LENGTH = 191
_MAX_BYTES = 512 * 1024
_CONNECT_SECONDS, _READ_SECONDS = 3.0, 7.0


class ProviderTrouble(DurableAgentsError):
    """The provider is unreachable, or its answer is invalid."""

    status, code, title = 502, "sign-in-provider", "Sign-in with the provider isn't possible now"

    def __init__(self, provider: OidcProvider, problem: str) -> None:
        super().__init__(
            f"{provider.name} can't sign in anybody at the moment: {problem}. Try again, or use your password."
        )


class NotBelieved(DurableAgentsError):
    """The provider's answer was refused. Nobody is signed in."""

    status, code, title = 403, "sign-in-refused", "Not signed in"

    def __init__(self, provider: OidcProvider, problem: str) -> None:
        super().__init__(f"{provider.name} could not sign you in: {problem}. Start again on the sign-in page.")


def begin(request: HttpRequest, provider: OidcProvider, *, next_: str, linking: int | None = None) -> HttpResponse:
    """Redirect the browser to the provider. Raises ProviderTrouble."""
    with _asking(request, provider):
        ours = {"next": next_, "linking": linking}
        answer: HttpResponse = _Provider(request, provider).redirect(request, "login", data=ours)
    return answer


def finish(request: HttpRequest, provider: OidcProvider) -> tuple[dict[str, Any], str, int | None]:
    """Verify the answer that the browser brings back; it can be used once. Raises NotBelieved, ProviderTrouble.

    Returns the claims, where to continue, and the account to link, if any.
    """
    adapter = _Adapter(request, provider)
    with _asking(request, provider):
        OAuth2CallbackView.adapter_view(adapter)(request)
    ours = adapter.login.state["data"]
    return adapter.claims, ours["next"], ours["linking"]


@contextmanager
def _asking(request: HttpRequest, provider: OidcProvider) -> Iterator[None]:
    """Report a provider's failure as ProviderTrouble."""
    with request_context(request):
        try:
            yield
        except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:  # a RequestException is an OSError
            raise ProviderTrouble(provider, _cause(error)) from error


def believed(provider: OidcProvider, token: Any, keys: Any, nonce: str) -> dict[str, Any]:
    """Return the claims of an ID token if it is valid for this sign-in (OpenID Connect Core 1.0, 3.1.3.7).

    Raises NotBelieved.
    """
    if not isinstance(token, str):
        raise NotBelieved(provider, "it sent no ID token")
    try:
        header = jwt.get_unverified_header(token)
        claims: dict[str, Any] = jwt.decode(
            token,
            key=_key(header, keys),
            algorithms=[*ALGORITHMS],
            audience=provider.client_id,
            issuer=provider.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["iss", "aud", "exp", "iat", "sub"]},
        )
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotBelieved(provider, f"its ID token is not valid ({_words(error)})") from error
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise NotBelieved(provider, "its ID token was made for another sign-in")
    azp, audience = claims.get("azp"), claims["aud"]
    if (azp is not None or (isinstance(audience, list) and len(audience) > 1)) and azp != provider.client_id:
        raise NotBelieved(provider, "its ID token was made for another application")
    subject = claims["sub"]
    if not (isinstance(subject, str) and 0 < len(subject) <= MAX_SUBJECT_LENGTH and subject.isprintable()):
        raise NotBelieved(provider, "its ID token names nobody whom a record could name")
    return claims


def _key(header: dict[str, Any], keys: Any) -> Any:
    """Return the published key that the token names; if it names none, the only published key."""
    if header.get("alg") not in ALGORITHMS:
        raise ValueError("its algorithm is none that is taken")
    named = [one for one in jwt.PyJWKSet.from_dict(keys).keys if one.public_key_use in (None, "sig")]
    if "kid" in header:
        named = [one for one in named if one.key_id == header["kid"]]
    if len(named) != 1:
        raise ValueError("no published key is the one that signed it")
    return named[0].key


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__


def _cause(error: Exception) -> str:
    """Return the cause of a failure without URLs and answers, which unauthenticated visitors must not see."""
    if isinstance(error, requests.Timeout):
        return "it does not answer in time"
    if isinstance(error, requests.ConnectionError):
        return "it can't be reached"
    if isinstance(error, OSError) and not isinstance(error, requests.RequestException):
        return "this installation can't read its client secret"
    return "what it answers can't be used"


class Wire(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Sends HTTP requests to providers: with timeouts, without redirects, and with bounded responses.

    Providers come from the environment.
    """

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        """Raise our own error instead of showing django-allauth's page. Raises NotBelieved, ProviderTrouble."""
        if isinstance(exception, OAuth2Error):
            raise NotBelieved(provider.of, "it did not take the code that you came with") from exception
        if exception is not None:
            raise ProviderTrouble(provider.of, _cause(exception)) from exception
        if "state" in extra_context:
            raise NotBelieved(provider.of, "it was cancelled or refused there")
        raise NotBelieved(provider.of, "this answer belongs to no sign-in that was begun here, or was used already")

    def get_requests_session(self) -> requests.Session:
        return _Session()


class _Session(requests.Session):
    def request(self, method: Any, url: Any, *args: Any, **given: Any) -> requests.Response:  # type: ignore[override]
        given |= {"timeout": (_CONNECT_SECONDS, _READ_SECONDS), "allow_redirects": False, "stream": True}
        response = super().request(method, url, *args, **given)
        body = response.raw.read(_MAX_BYTES + 1, decode_content=True)
        if len(body) > _MAX_BYTES:
            raise requests.RequestException("the answer is too long")
        response._content = body
        return response


class _Login(SocialLogin):  # type: ignore[misc]
    def lookup(self) -> None:
        """Stop django-allauth's processing here. It would look up accounts by a provider's name, and change them."""
        raise ImmediateHttpResponse(HttpResponse())


class _Adapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """django-allauth's adapter for a provider that the environment configures."""

    claims: dict[str, Any]

    def __init__(self, request: HttpRequest, provider: OidcProvider) -> None:
        super().__init__(request, provider.id)
        self._of, self.login = provider, _Login()

    def get_provider(self) -> _Provider:
        return _Provider(self.request, self._of)

    def get_access_token_data(self, request: HttpRequest, app: Any, client: Any, pkce_code_verifier: Any = None) -> Any:
        """Exchange the code, and verify the ID token in the answer. Raises NotBelieved."""
        token = super().get_access_token_data(request, app, client, pkce_code_verifier)
        with _Session() as session:
            keys = session.get(self.openid_config["jwks_uri"]).json()
        self.claims = believed(self._of, token.get("id_token"), keys, _nonce(pkce_code_verifier))
        return token

    def parse_token(self, data: Any) -> SocialToken:
        return SocialToken()  # the access token isn't used

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **kwargs: Any) -> _Login:
        return self.login

    @property
    def openid_config(self) -> dict[str, Any]:
        """Return the issuer's document.

        Raises ValueError if the document belongs to another issuer, or names non-https addresses for codes and secrets.
        """
        found: dict[str, Any] = super().openid_config
        if found.get("issuer") != self._of.issuer:
            raise ValueError("it calls itself another issuer")
        is_plain = urlsplit(self._of.issuer).scheme == "http"
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if urlsplit(str(found.get(name, ""))).scheme not in (("http", "https") if is_plain else ("https",)):
                raise ValueError(f"its {name} is none")
        return found

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        """Return the callback under the configured base URL, whatever host the request names."""
        return settings.DURABLEAGENTS.base_url + reverse("sso_callback", args=[self._of.id])


class _Provider(OpenIDConnectProvider):  # type: ignore[misc]
    def __init__(self, request: HttpRequest, provider: OidcProvider) -> None:
        self.of = provider
        how = {
            "server_url": provider.issuer.rstrip("/"),
            "oauth_pkce_enabled": True,
            "scope": list(provider.scopes),
        }
        app = SocialApp(
            provider="openid_connect",
            provider_id=provider.id,
            name=provider.name,
            client_id=provider.client_id,
            secret=provider.client_secret_file.read_text().strip(),
            settings=how,
        )
        super().__init__(request, app=app)

    def get_oauth2_adapter(self, request: HttpRequest) -> _Adapter:
        return _Adapter(request, self.of)

    def get_pkce_params(self) -> dict[str, Any]:
        """Return the parameters that are sent with the request.

        The nonce is derived from the secret that django-allauth keeps for PKCE.
        """
        made = super().get_pkce_params()
        return {**made, "nonce": _nonce(made["code_verifier"])}


def _nonce(verifier: str) -> str:
    return hashlib.sha256(f"nonce of {verifier}".encode()).hexdigest()
