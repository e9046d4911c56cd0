"""Go to the provider and back, as a browser does."""

from __future__ import annotations

from typing import Any

import requests
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.test import Client

from ledger.models import AccountRecord
from tests.contrib.accounts.conftest import Someone
from tests.contrib.accounts.idp import Idp

BACK = "/login/sso/corp/callback"


def out(client: Client, next_: str = "/") -> str:
    answer = client.get("/login/sso/corp", {"next": next_})
    assert answer.status_code == 302, answer.content
    there = requests.get(answer["Location"], allow_redirects=False, timeout=10)
    assert there.status_code in (302, 307)
    where = there.headers["Location"]
    assert where.startswith(f"{settings.DURABLEAGENTS.base_url}{BACK}?")
    return where.removeprefix(settings.DURABLEAGENTS.base_url)


def sign_in(client: Client, next_: str = "/") -> Any:
    return client.get(out(client, next_))


def known(who: Someone, idp: Idp, subject: str = "248289761001") -> SocialAccount:
    return SocialAccount.objects.create(user=who.user, provider=idp.issuer, uid=subject)


def told(*actions: str) -> list[tuple[str, str, str, Any]]:
    rows = AccountRecord.objects.filter(action__in=actions).order_by("id")
    return list(rows.values_list("action", "by", "subject", "after"))
