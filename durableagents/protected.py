"""Register API keys and own tags as protected rows (see ledger/protected.py)."""

from __future__ import annotations

from durableagents.models import ApiKey, OwnTag
from ledger.accounts import ACCOUNT
from ledger.protected import belongs_to, protect

KEY = protect(ApiKey, "API key", named_by="name", free=frozenset({"last_used_at"}))
belongs_to(OwnTag, ACCOUNT, "user_id")
