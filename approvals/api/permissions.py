"""Permissions of endpoints that administrators may use without a role."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from approvals.queues.who import ADMIN, is_admin
from ledger.web.roles import HasRole


class OrAdmin(BasePermission):
    """Allow holders of one of the roles, and administrators."""

    message = "None of your roles allows this."

    def has_permission(self, request: Request, view: Any) -> bool:
        if HasRole().has_permission(request, view):
            return True
        view.acting_role = ADMIN
        return is_admin(request.user)
