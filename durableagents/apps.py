import gc
from typing import Any

from django.apps import AppConfig
from django.contrib.admin import apps
from django.db.models import ProtectedError
from django.db.models.signals import post_migrate, pre_delete, pre_migrate


class DurableAgentsConfig(AppConfig):
    name = "durableagents"
    label = "durableagents"
    default = True

    def ready(self) -> None:
        from django.apps import apps as registry
        from django.contrib.admin.models import LogEntry

        from durableagents import checks as checks  # importing registers the checks
        from durableagents import keys
        from durableagents import protected as protected  # importing connects the signal receivers
        from durableagents.grants import grant_after_migrate
        from durableagents.identity import names
        from durableagents.identity.demo_accounts import demo_accounts
        from durableagents.identity.session_rows import every_session
        from durableagents.navigation import SECTIONS
        from ledger import privileges
        from ledger.verification import registers
        from ledger.web import navigation
        from runs.journal.asked import policies

        names.guard_user_names()
        registers.register(every_session)
        # Apps outside the core add their own by methods of their AppConfig.
        configs = registry.get_app_configs()
        more = [each for app in configs for each in getattr(app, "sections", list)()]
        notices = [app.notices for app in configs if hasattr(app, "notices")]
        navigation.declare((*SECTIONS, *more), accounts=demo_accounts, notices=notices)
        privileges.others.extend(each for each in (keys.refusal, policies.refusal) if each not in privileges.others)

        # This app comes last, when all other tables exist. Functions come first: inserting the rows below fires
        # triggers, and the grants cover the functions.
        post_migrate.connect(install_definitions, sender=self)
        post_migrate.connect(grant_after_migrate, sender=self)
        post_migrate.connect(create_roles, sender=self)
        post_migrate.connect(create_queues, sender=self)
        post_migrate.connect(issue_bootstrap_key, sender=self)
        post_migrate.connect(ship_prices, sender=self)
        pre_migrate.connect(refuse_unknown_migrations, sender=self)
        pre_delete.connect(keep_admin_log, sender=LogEntry)
        gc.freeze()
        gc.enable()


class AdminConfig(apps.AdminConfig):
    """Django's administration on our own site, which records the actor of changes."""

    default = False
    default_site = "durableagents.admin_site.Site"


def keep_admin_log(*, instance: Any, **_: Any) -> None:
    """Refuse to delete the administration's log, even when an account is deleted. Raises ProtectedError.

    The runtime role may not delete this log. While this receiver is connected, Django queries the entries before it
    deletes any, so an account without entries can still be deleted.
    """
    raise ProtectedError("The administration's log must stay complete: deactivate the account.", {instance})


def create_roles(*, using: str, **_: Any) -> None:
    """Create the roles as empty groups. Operators and auditors may read payloads when their role is first created."""
    from django.contrib.auth.models import Group, Permission

    from ledger.web.roles import AUDITOR, OPERATOR, ROLES
    from ledger.web.seeing.viewers import APP, READ_PAYLOADS

    for role in ROLES:
        group, is_new = Group.objects.using(using).get_or_create(name=role)
        if is_new and role in (OPERATOR, AUDITOR):  # only at creation: an administrator may remove the right later
            reads = Permission.objects.using(using).filter(content_type__app_label=APP, codename=READ_PAYLOADS)
            group.permissions.add(*reads)


def create_queues(*, using: str, **_: Any) -> None:
    """Create the queues named in the settings, unless a queue of that name ever existed."""
    from approvals.queues.labels import seed

    seed(using)


def issue_bootstrap_key(*, using: str, **_: Any) -> None:
    """Issue the first API key if a setting configures one and no key was ever issued. Raises EnvironmentProblem."""
    from django.conf import settings

    from durableagents.identity import bootstrap
    from ledger import schema

    if settings.DURABLEAGENTS.bootstrap_key and schema.is_migrated(using):
        bootstrap.issue(settings.DURABLEAGENTS.bootstrap_key)


def ship_prices(*, using: str, **_: Any) -> None:
    """Add the shipped prices of models without a price, unless a migration is still missing (`migrate APP NAME`)."""
    from ledger import schema
    from runs.services.budgets import prices

    if schema.is_migrated(using):
        prices.ship()


def install_definitions(*, using: str, **_: Any) -> None:
    """Install the SQL functions, types and triggers, unless a migration is still missing (`migrate APP NAME`)."""
    from django.core.management import CommandError

    from ledger import definitions, schema

    if schema.is_migrated(using):
        try:
            definitions.install(using)
        except definitions.DefinitionRefused as refused:
            raise CommandError(str(refused)) from refused


def refuse_unknown_migrations(*, using: str, **_: Any) -> None:
    """Refuse to migrate a database that has migrations this code lacks. Raises EnvironmentProblem.

    Django would ignore them, and the grants of older code would make the tables of newer code writable.
    """
    from durableagents.env import EnvironmentProblem
    from ledger import schema

    if problem := schema.migrate_refusal(using):
        raise EnvironmentProblem(problem)
