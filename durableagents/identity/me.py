"""The caller's own account and key, for programs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.queues.who import is_admin
from durableagents.models import ApiKey
from ledger.web.api_base import READ, ApiView, Query, described
from ledger.web.roles import ordered, roles
from ledger.web.seeing.viewers import viewer_of
from ledger.web.shapes import Shape


class KeyRow(Shape):
    """The API key that authenticated the request."""

    name: str = Field(description="Name of the key.")
    prefix: str = Field(description="Its first characters.")
    expires_at: datetime | None = Field(description="Time when it expires; null: never.")
    budget: dict[str, Any] | None = Field(description="Highest budget that it may grant to a run; null for no limit.")


class MeRow(Shape):
    """The caller."""

    name: str = Field(description="User name of the account.")
    auth: Literal["api_key", "session"] = Field(description="Means of authentication.")
    key: KeyRow | None = Field(description="Null: a session.")
    roles: list[str] = Field(description="Roles of the account.")
    is_administrator: bool = Field(description="True: the account is an administrator.")
    permissions: list[str] = Field(description="Permissions beyond its roles, such as `approvals.change_queue`.")
    sees_all_runs: bool = Field(
        description="False: only runs that the account started, and runs with one of its own tags."
    )
    reads_all_payloads: bool = Field(description="False: only those of the account's own runs.")
    own_tags: list[str] = Field(description="Tags whose runs count as the account's own.")


class Me(ApiView):
    """Return the caller's identity and permissions. Use it to check a key without any effect."""

    # Accounts without a role may read this too, to learn that they have none.
    permission_classes = [IsAuthenticated]
    roles = READ

    @described("Get the caller", MeRow, name="me_retrieve")
    def get(self, request: Request) -> Response:
        Query(request)
        user, who = request.user, viewer_of(request.user)
        key = request.auth if isinstance(request.auth, ApiKey) else None
        return Response(
            MeRow.of(
                None,
                name=user.get_username(),
                auth="session" if key is None else "api_key",
                key=None if key is None else KeyRow.of(key),
                roles=ordered(roles(user)),
                is_administrator=is_admin(user),
                permissions=sorted(user.get_all_permissions()),
                sees_all_runs=who.sees_all,
                reads_all_payloads=who.reads_all,
                own_tags=sorted(who.tags),
            )
        )
