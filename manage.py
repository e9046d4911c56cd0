#!/usr/bin/env python
"""Django's command line. A wrong environment variable is one line and exit code 2, no traceback."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "durableagents.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    from durableagents.env import EnvironmentProblem

    try:
        execute_from_command_line(sys.argv)
    except (EnvironmentProblem, ImproperlyConfigured) as problem:
        print(f"manage.py: {problem}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
