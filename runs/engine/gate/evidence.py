"""What an approver is shown of a call: evidence, the target it acts on, and its risk. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RISKS = ("", "low", "medium", "high")  # of a tool, if it says; the least first


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something an approver should see, part of what the decision binds: `label` is its heading, `source` where it
    comes from, `content` plain data that is shown as it stands.
    """

    label: str
    source: str
    content: Any

    def as_json(self) -> dict[str, Any]:
        """Plain data, as it enters the plan."""
        return {"label": self.label, "source": self.source, "content": self.content}


_NAMES = (
    "legal_name",
    "vendor_name",
    "company",
    "customer",
    "title",
    "subject",
    "name",
    "vendor",
    "topic",
    "vendor_id",
    "recipient",
    "to",
    "email",
)


def subject(document: Any) -> str:
    """The first field that reads like a party's or a matter's name, as it stands there; empty if none does."""
    if not isinstance(document, dict):
        return ""
    for name in _NAMES:
        value = document.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""
