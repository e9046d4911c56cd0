"""Which side of a ramp a start came out on, in words."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from ledger.templatetags.console import visible

WHY = {
    "tag": "by its tag",
    "share": "by the ramp's share",
    "halted": "the ramp was halted",
    "unserved": "no living worker had the newer one",
    "unknown": "whoever took the start had not the newer one",
}


def assigned(f: Mapping[str, Any], attempt: int = 0) -> str:
    """Which version it got, of which ramp, and why."""
    version = f["to_version"] if f["is_new"] else f["from_version"]
    why = visible(WHY.get(str(f["why"]), str(f["why"])))
    tag = f" <code>{visible(f['tag'])}</code>" if f.get("tag") else ""
    share, place = (escape(f"{int(f[name]) / 100:g}") for name in ("share", "place"))
    at = f" (its key stands at {place} of 100, the share is {share})" if f["why"] == "share" else ""
    return f"version <b>{visible(version)}</b>, {why}{tag}{at} · ramp {escape(str(f['ramp']))}"
