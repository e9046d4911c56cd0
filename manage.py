#!/usr/bin/env python
"""Django's command line. A wrong environment variable or a database that is down is one line and exit code 2."""

import os
import sys

# Those that a person starts and that look at no more than what starting needs; the others tell it as a system check.
# What `up` starts has been told of by `up`.
_TOLD = {"up", "web", "worker"}


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durableagents.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db import OperationalError

        from durableagents import env
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in {"django", "pydantic", "pydantic_settings"}:
            raise
        print(
            f"manage.py: this Python has no {missing.name}: run `make install`, then .venv/bin/python manage.py",
            file=sys.stderr,
        )
        sys.exit(2)

    if "DURABLEAGENTS_UP" not in os.environ and _TOLD & set(sys.argv[1:2]):
        for line in env.unread():
            print(f"manage.py: {line}", file=sys.stderr)
    try:
        execute_from_command_line(sys.argv)
    except (env.EnvironmentProblem, ImproperlyConfigured) as problem:
        print(f"manage.py: {problem}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:  # of a settings module, such as botocore for the options of a storage
        from runs.engine import extras

        if not (lack := extras.missing_import(error)):
            raise
        print(f"manage.py: {os.environ['DJANGO_SETTINGS_MODULE']}: {lack}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader of its output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) is not None:  # the server's own answer
            raise
        why = str(error).strip().partition("\n")[0]
        print(
            f"manage.py: the database can't be reached ({why}): "
            "start `make up` in another terminal, or set DATABASE_URL to a server that runs",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
