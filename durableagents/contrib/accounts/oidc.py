"""OpenID Connect: authorization code flow with PKCE. Imported only when used: workers don't need the libraries."""

# django-allauth provides discovery, one-time state, PKCE and the code exchange. Added here: the nonce, the token's
# signature under the issuer's published keys with named algorithms, and that the issuer is the configured one, not what
# its document claims.

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import jwt
import requests
from allauth.core.context import request_context
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.internal import statekit
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from durableagents.providers import OidcProvider
from ledger.errors import DurableAgentsError

# No shared-secret algorithms: a public key must never verify as one.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_SECONDS = 60
MAX_SUBJECT_LENGTH = 191
_MAX_BYTES = 512 * 1024
_CONNECT_SECONDS, _READ_SECONDS = 3.0, 7.0
_KNOWN_SECONDS = 300.0
_known: dict[str, tuple[float, dict[str, Any]]] = {}


class ProviderTrouble(DurableAgentsError):
    """The provider is unreachable, or its answer is invalid."""

    status, code, title = 502, "sign-in-provider", "Sign-in isn't possible there now"

    def __init__(self, provider: OidcProvider, problem: str) -> None:
        super().__init__(f"{provider.name} can't sign anybody in now: {problem}. Try again, or use your password.")


class NotBelieved(DurableAgentsError):
    """The provider's answer is refused. Nobody is signed in."""

    status, code, title = 403, "sign-in-refused", "Not signed in"

    def __init__(self, provider: OidcProvider, problem: str) -> None:
        super().__init__(f"You are not signed in by {provider.name}: {problem}. Begin again on the sign-in page.")


@dataclass(frozen=True, slots=True)
class Came:
    """A verified sign-in: its `claims`, where to continue (`next`), and the account to link (`linking`), if any."""

    claims: dict[str, Any]
    next: str
    linking: int | None

    @property
    def subject(self) -> str:
        return str(self.claims["sub"])


def begin(request: HttpRequest, provider: OidcProvider, *, next_: str, linking: int | None = None) -> HttpResponse:
    """Redirect the browser to the provider. Raises ProviderTrouble."""
    nonce = secrets.token_urlsafe(24)
    ours = {"nonce": nonce, "next": next_, "linking": linking}
    with request_context(request):
        try:
            answer: HttpResponse = _Provider(request, provider).redirect(
                request, "login", data=ours, auth_params={"nonce": nonce}
            )
        except (OAuth2Error, requests.RequestException, KeyError, TypeError, ValueError, OSError) as error:
            raise ProviderTrouble(provider, _cause(error)) from error
    return answer


def finish(request: HttpRequest, provider: OidcProvider) -> Came:
    """Verify the browser's answer, once. Raises NotBelieved, ProviderTrouble."""
    with request_context(request):
        state = statekit.unstash_state(
            request, provider_id=provider.id, state_id=request.GET.get("state", "").replace("\x00", "")
        )
        if state is None:
            raise NotBelieved(provider, "this answer belongs to no sign-in that was begun here, or was used already")
        if request.GET.get("error") or not request.GET.get("code"):
            raise NotBelieved(provider, "it was cancelled or refused there")
        adapter = _Adapter(request, provider)
        ours = state["data"]
        try:
            client = adapter.get_client(request, adapter.get_provider().app)
            token = client.get_access_token(request.GET["code"], pkce_code_verifier=state["pkce_code_verifier"])
            keys = _json(adapter.openid_config["jwks_uri"]) if token.get("id_token") else {}
        except OAuth2Error as error:
            raise NotBelieved(provider, "it did not take the code that you came with") from error
        except (requests.RequestException, KeyError, TypeError, ValueError, OSError) as error:
            raise ProviderTrouble(provider, _cause(error)) from error
    return Came(believed(provider, token.get("id_token"), keys, ours["nonce"]), ours["next"], ours["linking"])


def believed(provider: OidcProvider, token: Any, keys: Any, nonce: str) -> dict[str, Any]:
    """Return an ID token's claims, valid for this sign-in (OpenID Connect Core 1.0, 3.1.3.7). Raises NotBelieved."""
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
    """Return the published key that the token names; if it names none, the only one."""
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
    """Return the cause without URLs and answers, which aren't for strangers."""
    if isinstance(error, requests.Timeout):
        return "it does not answer in time"
    if isinstance(error, requests.ConnectionError):
        return "it can't be reached"
    if isinstance(error, OSError) and not isinstance(error, requests.RequestException):
        return "this installation can't read its client secret"
    return "what it answers can't be used"


class Wire(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """HTTP to providers: with timeouts, without redirects, of bounded size. Providers come from the environment."""

    def get_requests_session(self) -> requests.Session:
        return _Session()

    def list_apps(self, request: HttpRequest, provider: Any = None, client_id: Any = None) -> list[SocialApp]:
        """Return no providers from the database."""
        return []


class _Session(requests.Session):
    def request(self, method: Any, url: Any, *args: Any, **given: Any) -> requests.Response:  # type: ignore[override]
        given |= {"timeout": (_CONNECT_SECONDS, _READ_SECONDS), "allow_redirects": False, "stream": True}
        response = super().request(method, url, *args, **given)
        body = response.raw.read(_MAX_BYTES + 1, decode_content=True)
        if len(body) > _MAX_BYTES:
            raise requests.RequestException("the answer is too long")
        response._content = body
        return response


class _Adapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """django-allauth's adapter for a provider of the environment."""

    def __init__(self, request: HttpRequest, provider: OidcProvider) -> None:
        super().__init__(request, provider.id)
        self._of = provider

    def get_provider(self) -> _Provider:
        return _Provider(self.request, self._of)

    @property
    def openid_config(self) -> dict[str, Any]:
        at, found = _known.get(self._of.id, (0.0, {}))
        if not found or found.get("issuer") != self._of.issuer or monotonic() - at > _KNOWN_SECONDS:
            found = _json(self.get_provider().server_url)
            _check_discovered(self._of, found)
            _known[self._of.id] = monotonic(), found
        return found

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        """Return the callback under the configured base URL, whatever the request claims."""
        return settings.DURABLEAGENTS.base_url + reverse("sso_callback", args=[self._of.id])


class _Provider(OpenIDConnectProvider):  # type: ignore[misc]
    def __init__(self, request: HttpRequest, provider: OidcProvider) -> None:
        self._of = provider
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
        return _Adapter(request, self._of)


def _json(url: str) -> dict[str, Any]:
    with _Session() as session:
        response = session.get(url)
        response.raise_for_status()
        if response.status_code != 200:
            raise ValueError("not an answer")
        found = response.json()
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _check_discovered(provider: OidcProvider, found: dict[str, Any]) -> None:
    """Check that the document is this issuer's and uses https for codes and secrets. Raises ValueError."""
    if found.get("issuer") != provider.issuer:
        raise ValueError("it calls itself another issuer")
    is_plain = urlsplit(provider.issuer).scheme == "http"
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        if urlsplit(str(found.get(name, ""))).scheme not in (("http", "https") if is_plain else ("https",)):
            raise ValueError(f"its {name} is none")
