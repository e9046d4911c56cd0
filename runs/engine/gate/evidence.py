"""Evidence, target and risk of a call, as shown to an approver. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RISKS = ("", "low", "medium", "high")  # declared risks of a tool, lowest first


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something an approver should see, and that the decision binds. `label` is its heading, `source` where it comes
    from, `content` plain data shown as it is."""

    label: str
    source: str
    content: Any

    def as_json(self) -> dict[str, Any]:
        """Return plain data for the plan."""
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
    """Return the first field that reads like a party's or a matter's name; empty if there is none."""
    if not isinstance(document, dict):
        return ""
    for name in _NAMES:
        value = document.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""
