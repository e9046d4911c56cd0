"""Migrate a database with the apps of the settings, open their pages, complete a run. Prints what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def main() -> None:
    import django

    django.setup()
    from django.apps import apps
    from django.contrib.auth.models import Group, User
    from django.core.management import call_command
    from django.test import Client
    from django.urls import URLPattern, get_resolver

    call_command("migrate", verbosity=0, interactive=False)
    olga = User.objects.create_superuser("olga")
    olga.groups.set(Group.objects.filter(name="operator"))
    client = Client(HTTP_HOST="localhost")
    client.force_login(olga)

    def routes(patterns: list[Any], prefix: str = "/") -> Iterator[tuple[str, URLPattern]]:
        for each in patterns:
            path = f"{prefix}{each.pattern}"
            if isinstance(each, URLPattern):
                yield path, each
            else:
                yield from routes(each.url_patterns, path)

    own = tuple(f"{app.name}." for app in apps.get_app_configs() if app.name.startswith("durableagents.contrib."))
    pages = {"/", "/runs", "/inbox", "/queues", "/fleet", "/audit", "/api/v1/runs", "/api/v1/me", "/reference"}
    for path, route in routes(get_resolver().url_patterns):
        view: Any = getattr(route.callback, "view_class", None) or getattr(route.callback, "cls", route.callback)
        if view.__module__.startswith(own) and "<" not in path and hasattr(view, "get"):
            pages.add(path)
    answers = {path: client.get(path) for path in sorted(pages)}
    # 404 and 422 where a page needs a link or a query, 405 where it only takes forms.
    fine = (200, 302, 404, 405, 422)
    wrong = {path: answer.status_code for path, answer in answers.items() if answer.status_code not in fine}
    assert not wrong, wrong

    from durableagents import Context, End
    from runs.models import Run
    from tests import kept
    from tests.integration.runs.stage import Stage
    from tests.world import Notes, agent_of

    async def node(state: Notes, ctx: Context) -> End:
        return End(str(await ctx.uuid()))

    stage = Stage()
    run = stage.start(agent_of(node))
    assert stage.drive() == "completed"
    assert client.get(f"/runs/{run.id}").status_code == 200
    assert Run.objects.get().state == "completed"
    stage.close()
    kept.hang_up()


if __name__ == "__main__":
    main()
