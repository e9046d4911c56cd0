"""A provider's answer is accepted only if it is signed by it, for us, now, and for this sign-in."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from django.test import Client
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse

from durableagents.env import OidcProvider
from tests.contrib.accounts.conftest import Someone
from tests.contrib.accounts.idp import CLIENT, Idp, forged_without_signature, signed_with_the_public_key
from tests.contrib.accounts.ways import BACK, known, out, sign_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("configure")]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_an_answer_to_no_question_is_refused(olga: Someone, idp: Idp) -> None:
    known(olga, idp)
    for query in ("", "?state=made-up&code=x", "?code=x", "?state=%00&code=x"):
        answer = olga.client.get(BACK + query)
        assert answer.status_code == 403 and not olga.is_in()


def test_what_was_begun_in_one_browser_is_not_ended_in_another(olga: Someone, idp: Idp) -> None:
    known(olga, idp)
    where, victim = out(olga.client), Client()
    out(victim)
    assert victim.get(where).status_code == 403 and not Someone(olga.user, olga.clock, victim).is_in()


def test_an_answer_is_good_once(olga: Someone, idp: Idp) -> None:
    known(olga, idp)
    where = out(olga.client)
    assert olga.client.get(where).status_code == 302
    olga.client.post("/logout")
    assert olga.client.get(where).status_code == 403 and not olga.is_in()


def test_a_code_that_was_used_signs_nobody_in(olga: Someone, idp: Idp) -> None:
    known(olga, idp)
    used = out(olga.client)
    assert olga.client.get(used).status_code == 302
    (code,) = re.findall(r"code=([^&]+)", used)
    there = Client()
    answer = there.get(re.sub(r"code=[^&]+", f"code={code}", out(there)))
    assert answer.status_code == 403 and "did not take the code" in answer.content.decode()


def test_a_code_of_somebody_elses_sign_in_is_of_no_use(olga: Someone, idp: Idp) -> None:
    """Injected into another sign-in: PKCE (RFC 7636) ties a code to the browser that began."""
    known(olga, idp)
    (code,) = re.findall(r"code=([^&]+)", out(olga.client))
    thief = Client()
    assert thief.get(re.sub(r"code=[^&]+", f"code={code}", out(thief))).status_code == 403


def test_a_refusal_there_is_said(olga: Someone, idp: Idp) -> None:
    idp.lies = {"refuses": True}
    answer = sign_in(olga.client)
    assert answer.status_code == 403 and "cancelled or refused there" in answer.content.decode()


NOW = int(time.time())


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "lie",
    [
        {"claims": {"iss": "https://evil.example"}},
        {"claims": {"iss": None}},
        {"claims": {"aud": "another application"}},
        {"claims": {"aud": None}},
        {"claims": {"aud": [CLIENT, "another"]}},
        {"claims": {"aud": [CLIENT, "another"], "azp": "another"}},
        {"claims": {"azp": "another"}},
        {"claims": {"exp": NOW - 3600}},
        {"claims": {"exp": None}},
        {"claims": {"iat": None}},
        {"claims": {"iat": NOW + 86_400}},
        {"claims": {"nbf": NOW + 86_400}},
        {"claims": {"nonce": "of another sign-in"}},
        {"claims": {"nonce": None}},
        {"claims": {"sub": None}},
        {"claims": {"sub": ""}},
        {"claims": {"sub": "x" * 192}},
        {"claims": {"sub": "a\x00b"}},
        {"signing": {"headers": {"kid": "unknown"}}},
        {"signing": {"headers": {"kid": "two"}}},
        {"signing": {"headers": {}}},
        {"signing": {"headers": {"kid": "one", "crit": ["made-up"], "made-up": 1}}},
        {"answer": {"id_token": "no token"}},
        {"answer": {"id_token": None}},
        {"answer": {"id_token": 7}},
        {"answer": {"id_token": "a.b.c"}},
    ],
    ids=lambda lie: re.sub(r"[0-9]{9,}", "…", str(lie)),  # the same in every process
)
def test_a_token_that_is_not_for_this_sign_in_is_refused(olga: Someone, idp: Idp, lie: dict[str, Any]) -> None:
    known(olga, idp)
    idp.lies = lie
    answer = sign_in(olga.client)
    assert answer.status_code == 403 and not olga.is_in(), answer.content
    assert olga.client.session.get("at_the_door") is None


def test_a_token_that_somebody_else_signed_is_refused(olga: Someone, idp: Idp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another key under the same name, also if the token brings it; no signature; the published key as a secret."""
    known(olga, idp)
    own = jwt.algorithms.RSAAlgorithm.to_jwk(idp.other_key.public_key(), as_dict=True)
    for brought in ({}, {"jwk": own}, {"jku": f"{idp.issuer}/keys"}, {"x5u": f"{idp.issuer}/keys"}):
        idp.lies = {"signing": {"key": idp.other_key, "headers": {"kid": "one", **brought}}}
        assert sign_in(olga.client).status_code == 403 and not olga.is_in()
    idp.lies = {}

    def claims(nonce: str) -> dict[str, Any]:
        return {"iss": idp.issuer, "aud": CLIENT, "iat": NOW, "exp": NOW + 9999, "nonce": nonce, "sub": "248289761001"}

    for forge in (
        lambda nonce: forged_without_signature(claims(nonce)),
        lambda nonce: signed_with_the_public_key(idp.public_pem, claims(nonce)),
    ):
        monkeypatch.setattr(idp, "id_token", forge)
        assert sign_in(olga.client).status_code == 403 and not olga.is_in()


def test_another_algorithm_that_is_named_is_taken(olga: Someone, idp: Idp) -> None:
    known(olga, idp)
    idp.lies = {"signing": {"key": idp.curve, "algorithm": "ES256", "headers": {"kid": "two"}}}
    assert sign_in(olga.client).status_code == 302


# --- when the provider is in trouble ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        lambda: PlainTextResponse("no", status_code=500),
        lambda: PlainTextResponse("{"),
        lambda: JSONResponse([]),
        lambda: JSONResponse({}),
        lambda: RedirectResponse("http://127.0.0.1:1/"),
        lambda: PlainTextResponse("x" * 2_000_000),
    ],
    ids=["500", "not JSON", "a list", "nothing", "elsewhere", "endless"],
)
def test_a_provider_in_trouble_is_told_and_the_password_still_works(olga: Someone, idp: Idp, answer: Any) -> None:
    idp.lies = {"configuration": answer}
    found = olga.client.get("/login/sso/corp")
    assert found.status_code == 502 and "use your password" in found.content.decode()
    assert olga.sign_in().status_code == 302 and olga.is_in()


def test_nonsense_instead_of_a_token_or_of_keys_signs_nobody_in(olga: Someone, idp: Idp) -> None:
    known(olga, idp)
    idp.lies = {"answer": {"expires_in": "soon", "refresh_token": 7}}  # not read
    assert sign_in(olga.client).status_code == 302
    for lies, status in (
        ({"token": lambda: JSONResponse("access_token")}, 502),
        ({"token": lambda: JSONResponse([])}, 403),
        ({"token": lambda: PlainTextResponse("no", status_code=500)}, 403),
        ({"keys": lambda: PlainTextResponse("no", status_code=500)}, 502),
        ({"keys": lambda: RedirectResponse("http://127.0.0.1:1/")}, 502),
        ({"keys": lambda: JSONResponse([])}, 403),
        ({"keys": lambda: JSONResponse({"keys": []})}, 403),
    ):
        stranger = Someone(olga.user, olga.clock)
        idp.lies = lies
        assert sign_in(stranger.client).status_code == status and not stranger.is_in()


def test_a_provider_that_calls_itself_another_is_not_asked(olga: Someone, idp: Idp) -> None:
    idp.lies = {"its_name": "https://evil.example"}
    assert olga.client.get("/login/sso/corp").status_code == 502


def test_a_provider_that_is_away_or_unknown(
    olga: Someone, idp: Idp, configure: Callable[..., OidcProvider], tmp_path: Path
) -> None:
    configure(issuer="http://127.0.0.1:1")
    assert olga.client.get("/login/sso/corp").status_code == 502
    configure(client_secret_file=tmp_path / "gone")
    assert olga.client.get("/login/sso/corp").status_code == 502
    assert olga.client.get("/login/sso/other").status_code == 404
    assert olga.client.get("/login/sso/other/callback").status_code == 404


def test_beginning_again_and_again_is_slowed_down(olga: Someone, idp: Idp) -> None:
    answers = [Client().get("/login/sso/corp").status_code for _ in range(21)]
    assert answers == [302] * 20 + [429]
