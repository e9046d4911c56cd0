"""``python -m durableagents.demo.sandbox``: exit 0 after a stop, 2 with one line when it can't start."""

from __future__ import annotations

import os
import sys

from .server import CantStart, run
from .settings import SettingError, Settings


def main() -> int:
    try:
        run(Settings.from_environment(os.environ))
    except (SettingError, CantStart) as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
