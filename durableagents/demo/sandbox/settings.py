"""Location of the sandbox's store and its ports, read once from the environment."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LEGAL_FORMS = frozenset(
    "ab ad ag ao aps as asa bv co company corp corporation dd doo ead eood gmbh inc incorporated jsc kft kg limited llc llp lp ltd"
    " nv oao oo ooo ou oy oyj pao pjsc plc pte pty pvt sa sarl sas se sl sp spa sro srl ug z zao zrt".split()
)
_FILLERS = frozenset("the and of group holding holdings".split())
_LATIN = str.maketrans(
    dict(
        zip(
            "абвгдеёжзийклмнопрстуфхцчшщъыьэюяіїєґ",
            "a b v g d e e zh z i i k l m n o p r s t u f kh ts ch sh shch _ y _ e yu ya i i e g".replace(
                "_", ""
            ).split(" "),
            strict=True,
        )
    )
    | {"ß": "ss", "ø": "o", "đ": "d", "ł": "l", "æ": "ae", "œ": "oe", "ı": "i", "&": " and "}
)


def tokens(name: str) -> list[str]:
    """Return the words of a name that distinguish companies, or all words if none do ("The Company Ltd")."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold().translate(_LATIN))
    # Dots and apostrophes join ("S.A." is "sa"), marks and invisible characters vanish, everything else separates.
    joined = "".join(c for c in folded if c not in ".'’" and unicodedata.category(c) not in ("Mn", "Cf"))
    words = re.findall(r"[^\W_]+", joined)
    telling = [word for word in words if word not in LEGAL_FORMS and word not in _FILLERS]
    return telling or words


def normalise(name: str) -> str:
    return " ".join(tokens(name))


def legal_form(name: str) -> str:
    """Return the legal form as written at the end of the name, or "company"."""
    last = name.split()[-1] if name.split() else ""
    folded = "".join(c for c in unicodedata.normalize("NFKD", last.casefold()) if c.isalnum() and c.isascii())
    return last if folded in LEGAL_FORMS else "company"


DEFAULT_HTTP_PORT = 8001
CHECKOUT = Path(__file__).resolve().parents[3]


class SettingError(Exception):
    """A variable that can't be used; the message is the one line the operator sees."""


@dataclass(frozen=True)
class Settings:
    """The process's settings."""

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
