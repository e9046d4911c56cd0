"""Registers keys, invitations, set-up links and parts of accounts as protected rows: see ledger/protected.py."""

from __future__ import annotations

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount

from durableagents.models import ApiKey, Invitation, OwnTag, SetupLink
from ledger.accounts import ACCOUNT
from ledger.protected import belongs_to, protect

KEY = protect(ApiKey, "API key", named_by="name", free=frozenset({"last_used_at"}))
INVITATION = protect(Invitation, "invitation of", named_by="username")
SETUP_LINK = protect(SetupLink, "set-up link", named_by="id")
belongs_to(Authenticator, ACCOUNT, "user_id", free={"last_used_at"})
belongs_to(SocialAccount, ACCOUNT, "user_id", free={"last_login"})
belongs_to(OwnTag, ACCOUNT, "user_id")
