"""Register invitations, set-up links, second factors and linked sign-ins as protected rows (ledger/protected.py)."""

from __future__ import annotations

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount

from durableagents.contrib.accounts.models import Invitation, SetupLink
from ledger.accounts import ACCOUNT
from ledger.protected import belongs_to, protect

INVITATION = protect(Invitation, "invitation of", named_by="username")
SETUP_LINK = protect(SetupLink, "set-up link", named_by="id")
belongs_to(Authenticator, ACCOUNT, "user_id", free={"last_used_at"})
belongs_to(SocialAccount, ACCOUNT, "user_id", free={"last_login"})
