"""The set-up page: a check-list for administrators, evaluated on each view.

While there is no administrator, the page says how to get the link for the first one (first_admin.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.checks import Tags, run_checks
from django.db import connection
from django.db.models import Count, Q
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from durableagents.contrib.accounts import first_admin, mail
from durableagents.contrib.accounts.models import Invitation
from durableagents.contrib.accounts.views_links import Door
from durableagents.contrib.accounts.views_people import AdminPage
from durableagents.identity.rights import known_roles
from durableagents.models import ApiKey
from ledger import privileges
from ledger.web.roles import OPERATOR, name_of, ordered, roles
from runs.engine.agents import registry
from runs.journal.asked.queues import QUEUES

_ARCHIVED = "SELECT current_setting('archive_mode'), last_archived_time FROM pg_stat_archiver"


@dataclass(frozen=True, slots=True)
class Item:
    """One item of the list. `tone` is "ok", "wait" (still to do) or empty (unknown)."""

    label: str
    tone: str
    words: str
    view: str = ""
    go: str = ""

    @property
    def state(self) -> str:
        return {"ok": "done", "wait": "to do"}.get(self.tone, "check manually")


class NotSetUp(Door):
    """The page shown before there is an administrator."""

    title = "This installation is not set up yet"
    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest) -> HttpResponse:
        words = "Run manage.py setup_link on the server to get the link for the first account."
        return self.show(request, words=words, is_closed=True)


class Setup(AdminPage):
    """The check-list, with links."""

    template = "accounts/setup.html"
    section = "setup"
    http_method_names = ["get", "head"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated and "fragment" not in request.GET and first_admin.is_open():
            return NotSetUp.as_view()(request)
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest) -> HttpResponse:
        people = list(_people())
        installation = list(_installation(has_role=bool(ordered(roles(request.user)))))
        left = sum(item.tone == "wait" for item in (*people, *installation))
        return self.show(
            request, {"parts": {"People and programs": people, "The installation": installation}, "left": left}
        )


def _item(label: str, is_done: object, done: str, to_do: str, view: str = "", go: str = "") -> Item:
    return Item(label, "ok" if is_done else "wait", done if is_done else to_do, view, go)


def _people() -> Iterator[Item]:
    found = User.objects.filter(is_active=True).aggregate(
        admins=Count("pk", filter=Q(is_superuser=True)), unreachable=Count("pk", filter=Q(email=""))
    )
    alone = "Only one account. Add a second administrator so that you can't be locked out."
    yield _item("Administrator", found["admins"] != 1, _count(found["admins"], "account"), alone, "people", "People")
    members = Count("user", filter=Q(user__is_active=True))
    having = dict(Group.objects.filter(name__in=(known := known_roles())).annotate(n=members).values_list("name", "n"))
    is_open = {"revoked_at__isnull": True, "accepted_at__isnull": True, "expires_at__gt": Now()}
    waiting = _count(Invitation.objects.filter(**is_open).count(), "invitation").capitalize()
    told = f"{', '.join(f'{name_of(role)}: {having.get(role, 0)}' for role in known)}. {waiting} open."
    nobody = f"{told} No operator: nobody can settle or retry runs."
    yield _item("Roles", having.get(OPERATOR), told, nobody, "people", "Invite people")
    yield from _queues(having)
    keys = ApiKey.objects.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=Now()), revoked_at__isnull=True).count()
    none = "None. Programs need a key to start runs."
    yield _item(
        "API keys", keys, f"{_count(keys, 'key')} in force.", none, "admin:durableagents_apikey_add", "Create key"
    )
    if found["unreachable"]:
        words = (
            f"{_count(found['unreachable'], 'account')} without an e-mail address, so without password reset by e-mail."
        )
        yield Item("E-mail addresses", "wait", words, "admin:auth_user_changelist", "Users")


def _queues(having: dict[str, int]) -> Iterator[Item]:
    queues = QUEUES
    if not queues:
        yield Item("Approval queues", "wait", "No queue: agents can't request approval.", "queues", "Queues")
    for queue, role in queues.items():
        number, what = having.get(role, 0), f"Queue {queue}"
        if not role:
            words = (
                "The queue's row was changed outside the application, so nobody can decide. Save it again on its page."
            )
            yield Item(what, "wait", words, "queues", "Queues")
        elif not queues.is_open(queue):
            words = "Closed: agents can't request approval here. Open it again."
            yield Item(what, "wait", words, "queues", "Queues")
        elif number:
            words = f"{_count(number, 'person', 'people')} decide{'s' if number == 1 else ''}, as {name_of(role)}."
            yield Item(what, "ok", words, "queues", "Queues")
        else:
            words = f"Nobody may decide here, so cases expire. Invite a {name_of(role)}."
            yield Item(what, "wait", words, "people", "Invite people")


def _installation(*, has_role: bool) -> Iterator[Item]:
    """Yield the items about the installation. Only people with a role get the link to agents."""
    environment = settings.DURABLEAGENTS
    agents = registry.agents()
    names = ", ".join(agent.graph_id for agent in agents[:5]) + (" and more" if len(agents) > 5 else "")
    none = "No agents loaded. List their modules in DURABLEAGENTS_AGENTS."
    yield _item("Agents", agents, f"Installed: {names}.", none, "agents" if has_role else "", "Agents")
    by_hand = "Off: pass links on yourself, or set DURABLEAGENTS_EMAIL_URL."
    yield _item("Mail", mail.is_set(), f"Sent as {environment.email_from}.", by_hand)
    is_public = environment.base_url.startswith("https://") and bool(environment.allowed_hosts)
    local = "Set DURABLEAGENTS_BASE_URL to your proxy's https address, DURABLEAGENTS_ALLOWED_HOSTS to its name."
    yield _item("Address and TLS", is_public, f"The address is {environment.base_url}", local)
    open_ = "DURABLEAGENTS_ENV is development: cookies are sent without TLS, and the database role isn't checked."
    yield _item("Production", environment.is_production, "Its rules hold.", open_)
    problem = privileges.problem_of(_asked)
    yield _item("Database role", not problem, "The database role can't change recorded data.", problem or "")
    yield _backups()
    for found in run_checks(tags=[Tags.security, "environment"], include_deployment_checks=environment.is_production):
        if not found.is_silenced():
            yield Item("Check", "wait", f"{found.msg} {found.hint or ''}".strip())


def _asked(statement: str, parameters: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchone()


def _backups() -> Item:
    """Return what the database knows about WAL archiving. It can't know about dumps or copies of the keys."""
    mode, archived = _asked(_ARCHIVED, [])
    keys = (
        f"Keep a copy of {settings.DURABLEAGENTS_MASTER_KEY_FILE.name} elsewhere: backups can't be restored without it."
    )
    if mode == "off":
        return Item("Backups", "", f"WAL archiving is off. This page can't tell whether you take dumps. {keys}")
    if archived is None:
        return Item("Backups", "wait", f"WAL archiving is on, but nothing has been archived yet. {keys}")
    return Item("Backups", "ok", f"WAL was last archived at {archived:%Y-%m-%d %H:%M} UTC. {keys}")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number or 'no'} {one if number == 1 else many or one + 's'}"
