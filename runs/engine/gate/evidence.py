"""What an approver is shown beside the arguments. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
