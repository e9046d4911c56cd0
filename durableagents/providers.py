"""Settings of OpenID Connect providers, read by `env.py`."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator


class OidcProvider(BaseModel):
    """An OpenID Connect provider, as configured in `DURABLEAGENTS_OIDC`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[a-z][a-z0-9-]{0,29}$", description="Name of the provider in URLs and records.")
    name: str = Field(min_length=1, max_length=40, description="Name of the provider on the sign-in page.")
    issuer: str = Field(max_length=200, description="The issuer exactly as in its tokens.")
    client_id: str = Field(min_length=1, max_length=191)
    client_secret_file: Path
    scopes: tuple[str, ...] = ("openid", "email", "profile")
    email_domains: tuple[str, ...] = Field(
        default=(),
        description="Mail domains in which a verified address from the provider is matched to an account.",
    )
    creates_in: str = Field(default="", description="The group for newly created accounts; not a role.")
    groups_claim: str = "groups"
    roles: dict[str, str] = Field(
        default_factory=dict, description="Maps a group in the claim to the role that it gives."
    )
    has_second_factor: bool = Field(
        default=False, description="Whether its sign-in counts as one with a second factor."
    )

    @field_validator("issuer")
    @classmethod
    def _address(cls, value: str) -> str:
        if not re.fullmatch(r"(https://[^/?#\s@]+|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?)(/[^?#\s]*)?", value):
            raise ValueError("not an address like https://id.example.org (http is for this machine alone)")
        return value
