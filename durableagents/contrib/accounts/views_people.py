"""Administrators' pages about people, invitations and sessions.

Names, roles and access are changed under /admin/; these pages make links and end access at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Count, Q
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.contrib.accounts import again, invitations, mail, resets, signed_in
from durableagents.contrib.accounts.models import Invitation
from durableagents.contrib.accounts.views_own import shown_once
from durableagents.identity.auth import ISSUE_OWN
from durableagents.identity.people import group_names
from durableagents.identity.rights import (
    LastAdministrator,
    known_roles,
    let_issue_keys,
    let_read_payloads,
    let_role_read_payloads,
    mark_of_roles,
    roles_that_read,
    set_roles,
)
from ledger.actors import Actor
from ledger.change_control import is_guarded
from ledger.errors import DurableAgentsError, JustificationRequired, Moved, NotFound
from ledger.web.page_forms import Refused
from ledger.web.roles import actor, name_of, ordered
from ledger.web.seeing.viewers import reads_payloads

ADMIN = "admin"
SHOWN = 100
_SUBJECT = "You are invited to Durable Agents"
_BODY = """{by} invites you to Durable Agents as {name}.

Choose a password by {until} (UTC):

{link}

The link works once. Don't share it.
"""


def _choices() -> list[tuple[str, str]]:
    return [(role, name_of(role)) for role in known_roles()]


class InviteForm(forms.Form):
    """The form for an invitation: the address and the roles."""

    username = forms.CharField(label="User name", max_length=150)
    email = forms.EmailField(label="E-mail")
    roles = forms.MultipleChoiceField(
        label="Roles", required=False, choices=_choices, widget=forms.CheckboxSelectMultiple
    )
    is_admin = forms.BooleanField(label="Administrator: invites people, assigns roles and keys", required=False)
    days = forms.IntegerField(
        label="Link expires after (days)", min_value=1, max_value=invitations.MAX_DAYS, initial=invitations.DAYS
    )
    justification = forms.CharField(label="Why", max_length=4000)


class AdminPage(again.Risky):
    """Base of pages for administrators, which is a right of its own, independent of roles."""

    allowed = frozenset()
    section = "people"
    risky = "change what others may do"

    def may_open(self, held: frozenset[str]) -> bool:
        return bool(self.request.user.is_superuser)

    def is_asked(self, user: User) -> bool:
        return user.is_superuser

    def refuse(self, request: HttpRequest) -> HttpResponse:
        return self.show(request, {"needed": ["Administrator"]}, template="errors/403.html", status=403)

    def wrong(self, request: HttpRequest, **kwargs: Any) -> HttpResponse | None:
        is_missing = not request.POST.get("justification", "").strip()
        return self.trouble(request, JustificationRequired("This")) if is_missing else None

    @property
    def by(self) -> Actor:
        return actor(self.request, ADMIN)


class People(AdminPage):
    """The page with accounts by name, and invitations."""

    template = "accounts/people.html"
    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest, *, form: InviteForm | None = None, status: int = 200) -> HttpResponse:
        after = request.GET.get("after", "").replace("\x00", "")[:150]
        rows = list(
            User.objects.filter(username__gt=after)
            .annotate(held=group_names("pk"), keys=Count("api_keys", filter=_WORKS))
            .order_by("username")[: SHOWN + 1]
        )
        reading, for_two = roles_that_read(), is_guarded("roles")
        open_ones = Q(revoked_at__isnull=True, accepted_at__isnull=True)
        context: dict[str, Any] = {
            "people": [(user, _roles(user)) for user in rows[:SHOWN]],
            "more": rows[SHOWN - 1].username if len(rows) > SHOWN else "",
            "invitations": [
                (row, list(map(name_of, invitations.roles_of(row) or [])), is_late, for_two and invitations.gives(row))
                for row, is_late in _with_time(Invitation.objects.filter(open_ones).order_by("-made_at")[:SHOWN])
            ],
            "form": form or InviteForm(),
            "readers": [(role, name_of(role), role in reading) for role in known_roles()],
            "mail": mail.is_set(),
        }
        return self.show(request, context, status=status)


_WORKS = Q(api_keys__revoked_at__isnull=True) & (
    Q(api_keys__expires_at__isnull=True) | Q(api_keys__expires_at__gt=Now())
)


def _with_time(rows: Any) -> list[tuple[Invitation, bool]]:
    """Return each invitation, with whether it has expired by the database's clock."""
    found = rows.annotate(is_late=Q(expires_at__lte=Now()))
    return [(row, row.is_late) for row in found]


def _roles(user: Any) -> list[str]:
    return list(map(name_of, ordered(user.held)))


class Invite(People):
    """Invite somebody. The link appears only in this response and in the mail."""

    http_method_names = ["post"]

    def wrong(self, request: HttpRequest, **kwargs: Any) -> HttpResponse | None:
        form = InviteForm(request.POST)
        return None if form.is_valid() else self.get(request, form=form, status=422)

    def post(self, request: HttpRequest) -> HttpResponse:
        form = InviteForm(request.POST)
        if not form.is_valid():
            return self.get(request, form=form, status=422)
        given = form.cleaned_data
        try:
            row, link = invitations.invite(
                name=given["username"],
                email=given["email"],
                roles=given["roles"],
                is_admin=given["is_admin"],
                days=given["days"],
                by=self.by,
                justification=given["justification"],
            )
        except DurableAgentsError as error:
            form.add_error(_field_of(error), error.detail)
            return self.get(request, form=form, status=error.status)
        words = f"Pass it on to {row.username}. It is shown only once."
        if mail.is_set():
            until = f"{row.expires_at:%-d %B %Y %H:%M}"
            body = _BODY.format(by=request.user.get_username(), name=row.username, until=until, link=link)
            mail.later(lambda: mail.send(row.email, _SUBJECT, body))
            words = f"It was sent to {row.email}. If it doesn't arrive, pass it on to {row.username}."
        return shown_once(self, request, f"{row.username} is invited", link, "people", words)


def _field_of(error: DurableAgentsError) -> str | None:
    """Return the form field that an error refers to, or None."""
    if error.code == "name-taken":
        return "username"
    named = [each.get("field", "") for each in error.extra.get("errors", [])]
    field = {"name": "username"}.get(named[0], named[0]) if named else ""
    return field if field in InviteForm.base_fields else None


class RevokeInvitation(AdminPage):
    http_method_names = ["post"]

    def post(self, request: HttpRequest, invitation_id: int) -> HttpResponse:
        invitations.revoke(invitation_id, by=self.by, justification=request.POST.get("justification", ""))
        messages.success(request, "Invitation revoked.", extra_tags="ok")
        return redirect("people")


class Person(AdminPage):
    """The page of one account."""

    template = "accounts/person.html"
    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest, user_id: int) -> HttpResponse:
        return self.tell(request, user_id)

    def tell(self, request: HttpRequest, user_id: int, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with the roles form that was refused."""
        user: Any = User.objects.filter(pk=user_id).annotate(held=group_names("pk")).first()
        if user is None:
            raise NotFound("account", user_id)
        known = known_roles()
        ticked = user.held if refused is None else request.POST.getlist("roles")
        context = {
            "person": user,
            "refused": refused,
            "is_ruling": user.is_superuser if refused is None else "is_admin" in request.POST,
            "roles": _roles(user),
            "sessions": signed_in.places(user, request.session.session_key),
            "seen": mark_of_roles({*user.held} & {*known}, user.is_superuser),
            "choices": [(role, name_of(role), role in ticked) for role in known],
            "may_issue": user.has_perm(ISSUE_OWN),
            "reads": reads_payloads(user),
            "reads_by_role": [name_of(role) for role in ordered(roles_that_read() & set(user.held))],
        }
        return self.show(request, context, status=200 if refused is None else refused.error.status)


class EndTheirSessions(AdminPage):
    http_method_names = ["post"]

    def post(self, request: HttpRequest, user_id: int) -> HttpResponse:
        ended = signed_in.end_of_another(
            user_id,
            request.POST.get("session", ""),
            by=self.by,
            justification=request.POST.get("justification", ""),
        )
        messages.success(request, f"{ended} session{'' if ended == 1 else 's'} ended.", extra_tags="ok")
        return redirect("person", user_id)


class MakeResetLink(AdminPage):
    """Create a reset link for somebody who can't be reached by mail."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, user_id: int) -> HttpResponse:
        user, link = resets.make_link(user_id, by=self.by, justification=request.POST.get("justification", ""))
        words = f"Pass it on only to {user.username}: anyone with it can set the password. Valid for four hours."
        return shown_once(self, request, f"A new password for {user.username}", link, "people", words)


class Permit(AdminPage):
    """Base of pages that give or remove a right of an account."""

    http_method_names = ["post"]
    act: ClassVar[Callable[..., None]]
    words: ClassVar[tuple[str, str]]

    def post(self, request: HttpRequest, user_id: int) -> HttpResponse:
        may = request.POST.get("may") == "yes"
        type(self).act(user_id, may, by=self.by, justification=request.POST.get("justification", ""))
        messages.success(request, self.words[not may], extra_tags="ok")
        return redirect("person", user_id)


class AllowOwnKeys(Permit):
    """Allow or forbid an account to create its own keys."""

    act = staticmethod(let_issue_keys)
    words = "They can now create their own keys.", "They can no longer create keys."


class LetReadPayloads(Permit):
    """Allow or forbid an account to read others' payloads."""

    act = staticmethod(let_read_payloads)
    words = "Data access granted.", "Data access removed."


class SetRoles(Person):
    """Set an account's roles."""

    http_method_names = ["post"]

    def wrong(self, request: HttpRequest, **kwargs: Any) -> HttpResponse | None:
        if request.POST.get("justification", "").strip():
            return None
        return self.tell(request, kwargs["user_id"], Refused("roles", JustificationRequired("This"), {}))

    def post(self, request: HttpRequest, user_id: int) -> HttpResponse:
        held, is_admin = request.POST.getlist("roles"), request.POST.get("is_admin") == "yes"
        why, seen = request.POST.get("justification", ""), request.POST.get("seen")
        try:
            set_roles(user_id, held, is_admin, seen=seen, by=self.by, justification=why)
        except (Moved, LastAdministrator, JustificationRequired) as error:
            return self.tell(request, user_id, Refused("roles", error, {"justification": why}))
        messages.success(request, "Roles saved.", extra_tags="ok")
        return redirect("person", user_id)


class LetRoleReadPayloads(AdminPage):
    """Allow or forbid all holders of a role to read payloads."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        may, role = request.POST.get("may") == "yes", request.POST.get("role", "").replace("\x00", "")[:150]
        let_role_read_payloads(role, may, by=self.by, justification=request.POST.get("justification", ""))
        words = f"{name_of(role)}: data access {'granted' if may else 'removed'}."
        messages.success(request, words, extra_tags="ok")
        return redirect("people")
