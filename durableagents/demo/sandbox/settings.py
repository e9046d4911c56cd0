"""Where the sandbox keeps its store and which ports it takes, read once from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_HTTP_PORT = 8001
CHECKOUT = Path(__file__).resolve().parents[3]


class SettingError(Exception):
    """A variable that can't be used; the message is the one line the operator sees."""


@dataclass(frozen=True)
class Settings:
    """All that the process is told from outside."""

    folder: Path
    http_port: int
    smtp_port: int

    @property
    def database(self) -> Path:
        return self.folder / "sandbox.db"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Raises SettingError naming the variable."""
        data = Path(environment.get("DURABLEAGENTS_DATA") or CHECKOUT / ".data")
        http_port = _port(environment, "SANDBOX_PORT", DEFAULT_HTTP_PORT)
        smtp_port = _port(environment, "SANDBOX_SMTP_PORT", http_port + 1)
        if http_port == smtp_port:
            raise SettingError(f"SANDBOX_PORT and SANDBOX_SMTP_PORT are both {http_port}: give them different ports")
        return cls(folder=data / "sandbox", http_port=http_port, smtp_port=smtp_port)


def _port(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name) or str(default)
    port = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    if not 1 <= port <= 65535:
        raise SettingError(f"{name} is {text!r}: give a port between 1 and 65535")
    return port
