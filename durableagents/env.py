"""Read the environment variables once, with their types.

Only `load()` reads them; the settings keep the result as `settings.DURABLEAGENTS`. The text of an `EnvironmentProblem`
is one line with the variable, the problem and the fix.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from durableagents.providers import OidcProvider as OidcProvider
from durableagents.seal_witness import SealWitness as SealWitness
from durableagents.seal_witness import read_witness
from durableagents.secret_sources import SecretSource as SecretSource
from durableagents.secret_sources import read_source
from runs.engine.limits import Rule
from runs.engine.limits import read as read_limits

CHECKOUT = Path(__file__).resolve().parent.parent

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_MAIL_ADDRESS = r"[^\s@<>\x00-\x1f]+@[^\s@<>\x00-\x1f]+"
# Roles that every installation has (ledger/web/roles.py). Their holders decide in no queue.
_OWN_ROLES = frozenset({"integrator", "operator", "auditor"})

# Variables that may hold a password. Errors don't quote their values.
_TOLD_WITHOUT_VALUE = {
    "DURABLEAGENTS_EMAIL_URL",
    "DURABLEAGENTS_METRICS_TOKEN",
    "DURABLEAGENTS_ENCRYPTION_KEYS",
    "DURABLEAGENTS_SEAL_WITNESSES",
    "DURABLEAGENTS_SECRETS",
}
# Default ports by scheme.
MAIL_PORTS = {"smtp": 587, "smtps": 465, "smtp+plain": 25}
# A folder of files named after settings, which is how containers get their secrets. Environment variables take
# precedence.
SETTINGS_DIR = "DURABLEAGENTS_SETTINGS_DIR"
Port = Annotated[int, Field(ge=1, le=65535)]


class EnvironmentProblem(Exception):
    """A problem of the environment, not of the code. The message is one line that says what to do."""


def _absolute(value: Path) -> Path:
    return Path(os.path.abspath(value.expanduser()))


def _read_by(read: Callable[[str], object]) -> BeforeValidator:
    """Return a validator that parses text with `read`, and leaves other values (set by code) unchanged."""
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


def _each(read: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [read(part.strip()) for part in text.split(",") if part.strip()]


def _like(pattern: str, problem: str) -> AfterValidator:
    """Return a validator that refuses a text that is not empty and doesn't match."""

    def check(value: str) -> str:
        if value and not re.fullmatch(pattern, value):
            raise ValueError(problem)
        return value

    return AfterValidator(check)


def _providers(text: str) -> object:
    """Parse a JSON list of providers: `[{"id": "corp", "issuer": "https://id.example.org", …}]`."""
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("not JSON: a list of providers (docs/how-to/single-sign-on-and-accounts.md)") from None


def _each_once(value: list[OidcProvider]) -> list[OidcProvider]:
    for what in ("id", "issuer"):
        if twice := _twice(getattr(provider, what) for provider in value):
            raise ValueError(f"the {what} {twice!r} is named twice")
    return value


def _twice(names: Iterable[str]) -> str | None:
    return next((name for name, times in sorted(Counter(names).items()) if times > 1), None)


def _witnesses(text: str) -> list[SealWitness]:
    found = _each(read_witness)(text)
    if twice := _twice(each.name for each in found):
        raise ValueError(f"the witness {twice} is named twice")
    return found


def _queue_roles(text: str) -> dict[str, str]:
    """Parse `queue=role,queue=role` into the role that decides each queue."""
    roles: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        queue, sign, role = map(str.strip, part.partition("="))
        if not sign or not _NAME.fullmatch(queue) or not _NAME.fullmatch(role):
            raise ValueError(f"{part!r} is not queue=role, each a name of lower-case letters, digits and _")
        if queue in roles:
            raise ValueError(f"the queue {queue!r} is named twice, but a queue belongs to one role")
        roles[queue] = role
    return roles


def _decided_by_approvers(value: dict[str, str]) -> dict[str, str]:
    for queue, role in value.items():
        if role in _OWN_ROLES:
            raise ValueError(f"the role {role!r} decides in no queue: name another role for the queue {queue!r}")
        # Questions name a queue or a role, so a name must not be both.
        if queue in {*_OWN_ROLES, *value.values()}:
            raise ValueError(f"{queue!r} names a queue and a role: give the queue another name")
    return value


def _module_names(value: list[str]) -> list[str]:
    for name in value:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{name!r} is not a module name")
    return value


def _networks(value: list[str]) -> list[str]:
    for text in [] if value == ["none"] else value:
        try:
            ip_network(text, strict=False)
        except ValueError:
            raise ValueError(
                f"{text!r} is not an address or network like 10.0.0.0/8 (`none` for no proxy at all)"
            ) from None
    return value


def _http_address(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"https?://[A-Za-z0-9.\-\[\]:]+(/[A-Za-z0-9._~/\-]*)?", value):
        raise ValueError("not an address like https://agents.example.org")
    return value.rstrip("/") if value else None


def _trace_viewer(value: str) -> str:
    bare = value.replace("{trace_id}", "").replace("{span_id}", "")
    if value and ("{trace_id}" not in value or not re.fullmatch(r"https?://[^\s<>\"'{}\\]+", bare)):
        raise ValueError("not an address like https://jaeger.example.org/trace/{trace_id}")
    return value


def _mail_server(value: str) -> str:
    """Check a mail server's address:

    `smtp://user:password@host:587` (STARTTLS), `smtps://…:465`, or `smtp+plain://…` without TLS.
    """
    try:
        found = urlsplit(value)
        is_right = found.scheme in MAIL_PORTS and bool(found.hostname) and (found.port is None or found.port > 0)
    except ValueError:
        is_right = False
    if value and (not is_right or found.path.strip("/") or found.query):
        raise ValueError("not an address like smtp://user:password@mail.example.org:587 (smtps://, smtp+plain://)")
    return value


def _mail_addresses(value: list[str]) -> list[str]:
    for text in value:
        if not re.fullmatch(_MAIL_ADDRESS, text):
            raise ValueError(f"{text[:80]!r} is not an address like audit@example.org")
    return list(dict.fromkeys(value))


Words = Annotated[list[str], NoDecode, _read_by(_each(str))]
Networks = Annotated[Words, AfterValidator(_networks)]


class Environment(BaseSettings):
    """All settings from the environment.

    A field's alias is its variable: DURABLEAGENTS_ and the field's name, unless stated otherwise. The string below a
    field documents it in docs/reference/settings.md (`manage.py docs_reference`).
    """

    model_config = SettingsConfigDict(
        extra="ignore", frozen=True, populate_by_name=True, alias_generator=lambda name: f"DURABLEAGENTS_{name.upper()}"
    )

    # --- Addresses and folders ---

    data: Annotated[Path, AfterValidator(_absolute)] = CHECKOUT / ".data"
    """Default: `.data` in the checkout. Folder for keys, logs, the secret store and the embedded database; created
    with mode 0700."""
    settings_dir: Path | None = Field(default=None, validation_alias=SETTINGS_DIR)
    """Folder with files named after settings, such as `DATABASE_URL`, for [secrets in
    containers](../how-to/deploy.md). A variable of the same name takes precedence."""
    port: Port = Field(default=8000, validation_alias="PORT")
    """Port of console and API, on 127.0.0.1."""
    sandbox_port: Port = Field(default=8001, validation_alias="SANDBOX_PORT")
    """Port of the demo sandbox's pages and systems."""
    sandbox_smtp_port: Port = Field(default=0, validation_alias="SANDBOX_SMTP_PORT")
    """Default: `SANDBOX_PORT` + 1. Port of the demo sandbox's mail server."""
    database_url: str | None = Field(default=None, validation_alias="DATABASE_URL")
    """Default: the embedded server.

    `postgresql://user:password@host:5432/name` of PostgreSQL 15 or newer: the role with which the application runs.
    """
    database_owner_url: str | None = Field(default=None, validation_alias="DATABASE_OWNER_URL")
    """The role that owns the tables, for `migrate` only. Without it, the role in `DATABASE_URL` does both.

    Production refuses to start web and workers with one role for both.
    """
    database_role: Literal["runtime", "owner"] = Field(default="runtime", validation_alias="DURABLEAGENTS_DB_ROLE")
    """`owner` makes a command connect as the owner, for `manage.py migrate`."""

    # --- Workers ---

    workers: int = Field(default=2, ge=1, le=64)
    """Worker processes."""
    slots: int = Field(default=50, ge=1, le=10_000)
    """Runs that one worker process executes at the same time."""
    serve: Words = []
    """Default: all. Agents that workers execute: `name` or `name@version`, comma-separated. `manage.py worker --only`
    overrides it for one worker."""
    drain_only: bool = False
    """`1`: workers finish runs that have begun and start no others, as `manage.py worker --drain-only`."""

    # --- Agents, models and limits ---

    agents: Annotated[Words, AfterValidator(_module_names)] = []
    """Modules to load agents from, comma-separated. Their folder must be on `PYTHONPATH`."""
    queues: Annotated[dict[str, str], NoDecode, _read_by(_queue_roles), AfterValidator(_decided_by_approvers)] = {}
    """Default: the demo's. Initial approval queues, and the role that decides in each: `refunds=approver_support,…`."""
    bootstrap_key: str = ""
    """`ACCOUNT:ROLE:FILE`: `migrate` creates this account with the API key in the file, if no key was ever issued."""
    models: Words = Field(default=[], validation_alias="DURABLEAGENTS_MODEL")
    """Default: scripted models. `openai:…` or `anthropic:…`, comma-separated: models of every assistant that names
    none, [tried in order](../how-to/real-models.md). The API key is read from the provider's own variable. Startup
    fails if a model can't be used."""
    # Example: `tool:charge per_minute=60 at_once=4; provider:openai breaker=50`. All workers share these limits.
    limits: Annotated[dict[str, Rule], NoDecode, _read_by(read_limits)] = {}
    """[Limits](../how-to/budgets-and-limits.md) shared by all workers, such as `tool:charge per_minute=60 at_once=4;
    provider:openai breaker=50`."""
    priority: int = Field(default=5, ge=0, le=100)
    """Highest priority that people other than operators may give to a run at its start."""
    encryption_keys: Words = ["master"]
    """[Master keys](../how-to/encrypt-and-rotate-keys.md) of stored payloads, comma-separated: `file:PATH`,
    `env:NAME`, `command:COMMAND`, `https://HOST/PATH#wrapped=FILE` or `master`. `none` stores new runs in the
    clear."""
    large_values: Path | None = None
    """Folder that all hosts share, for [values over 8 KiB](../../durableagents/contrib/large_values/README.md)."""
    # Example: `env,file:/run/secrets,command:/usr/local/bin/get-secret`
    secret_sources: Annotated[list[SecretSource], NoDecode, _read_by(_each(read_source))] = Field(
        default_factory=lambda: [read_source("env")], validation_alias="DURABLEAGENTS_SECRETS"
    )
    """Default: `env`. Where tools' [secrets](../../durableagents/contrib/secrets/README.md) are read, comma-separated,
    in this order: `env`, `file:/folder`, `command:/command`."""
    redact: Words = []
    """Fields redacted in exports, comma-separated, such as `iban,customer.name`."""
    screens: Words = []
    """[Guardrail hooks](../how-to/documents-and-screening.md) for every agent: `module:function`, comma-separated."""
    budget_queue: str = ""
    """Approval queue whose approvers may raise a budget, in addition to operators."""

    # --- Signing in and notifications ---

    secret_key: str | None = None
    """Default: created, kept in the file `secret_key`. Signs sessions and forms."""
    second_factor_roles: Words = Field(default=[], validation_alias="DURABLEAGENTS_REQUIRE_SECOND_FACTOR")
    """Roles that need a [second factor](../how-to/single-sign-on-and-accounts.md), comma-separated:
    `operator,approver_*`, and `staff` for users of `/admin/`."""
    oidc: Annotated[list[OidcProvider], NoDecode, _read_by(_providers), AfterValidator(_each_once)] = []
    """[OpenID Connect providers](../how-to/single-sign-on-and-accounts.md), a JSON list."""
    passkey_domain: Annotated[
        str,
        _like(
            r"localhost|(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*",
            "not a domain like agents.example.org, in lower case and without a port",
        ),
    ] = ""
    """Default: the host of `DURABLEAGENTS_BASE_URL`. Domain that passkeys are bound to, if it is a parent of the
    address."""
    push_key: Path | None = Field(default=None, validation_alias="DURABLEAGENTS_PUSH_KEY_FILE")
    """Default: `push.pem` in `DURABLEAGENTS_DATA`. Private key (P-256, PEM) that identifies this installation to push
    services. `manage.py push_key` creates it."""
    push_contact: Annotated[
        str,
        _like(
            r"mailto:[^\s@<>]+@[^\s@<>]+|https://[^\s<>]+",
            "not an address like mailto:agents@example.org, or an https address",
        ),
    ] = ""
    """Default: `mailto:` and `DURABLEAGENTS_EMAIL_FROM`. Contact given to push services: `mailto:…` or an https
    address."""

    # --- Mode ---

    stage: Literal["development", "production"] = Field(default="development", validation_alias="DURABLEAGENTS_ENV")
    """`production` turns on the [security settings](../explanation/threat-model.md#what-production-mode-enforces)."""
    # None: outside production, the demo's agents and queues exist, but without one-click sign-in. False: no demo.
    demo: bool | None = None
    """Default: set by `make up`. `1`: one-click sign-in for demo users, never in production. `0`: no demo users,
    agents, queues or sandbox."""
    email_url: Annotated[str, AfterValidator(_mail_server)] = ""
    """Mail server: `smtp://user:password@mail.example.org:587` (STARTTLS), `smtps://…:465`, or `smtp+plain://…`
    without TLS."""
    email_from: Annotated[str, _like(_MAIL_ADDRESS, "not one address like agents@example.org")] = ""
    """Sender of mail. Set it together with `DURABLEAGENTS_EMAIL_URL`."""
    webhook_addresses: Networks = Field(default=[], validation_alias="DURABLEAGENTS_WEBHOOK_NETWORKS")
    """Private networks that chats, push services and [webhooks](../how-to/webhooks.md) may be in, such as
    `10.1.0.0/16`. In these networks, chats and webhooks may use `http`."""

    # --- Public address and logs ---

    public_url: Annotated[str | None, AfterValidator(_http_address)] = Field(
        default=None, validation_alias="DURABLEAGENTS_BASE_URL"
    )
    """Default: `http://127.0.0.1:$PORT`. Public address of this installation, also used for callbacks."""
    docs_url: Annotated[str | None, AfterValidator(_http_address)] = None
    """Address of the documentation that `make docs` builds. With it, the console's pages link to their help."""
    allowed_hosts: Words = []
    """Further host names that the web process answers to, comma-separated."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """`DEBUG`, `INFO`, `WARNING` or `ERROR`."""
    log_format: Literal["text", "json"] = "text"
    """`json` logs one JSON object per line."""
    otlp_endpoint: Annotated[str | None, AfterValidator(_http_address)] = None
    """Address of an OpenTelemetry collector, such as `http://127.0.0.1:4318`:
    [tracing](../../durableagents/contrib/tracing/README.md)."""
    # The OpenTelemetry exporter reads these variables itself. In these settings they only switch tracing on and off.
    otel_endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    """Standard variable, instead of `DURABLEAGENTS_OTLP_ENDPOINT`."""
    otel_traces_endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    """Standard variable, instead of `DURABLEAGENTS_OTLP_ENDPOINT`."""
    is_otel_disabled: bool = Field(default=False, validation_alias="OTEL_SDK_DISABLED")
    """`true` turns tracing off."""
    trace_ratio: float = Field(default=1.0, ge=0, le=1)
    """Share of traces that are exported."""
    trace_url: Annotated[str, AfterValidator(_trace_viewer)] = ""
    """Address of a trace in your viewer, such as `http://127.0.0.1:16686/trace/{trace_id}?uiFind={span_id}`. Runs and
    effects link to it."""

    # --- Connections and timeouts ---

    database_direct_url: str | None = Field(default=None, validation_alias="DATABASE_DIRECT_URL")
    """Default: `DATABASE_URL`. Address of the server itself, if `DATABASE_URL` is a [transaction
    pooler](../how-to/postgresql-and-pgbouncer.md). Used for LISTEN, heartbeats and workers."""
    drain_seconds: float = Field(default=12.0, ge=0, le=86_400)
    """Default: 12, or 10 under `make up`. Seconds that a stopping worker allows its steps to finish."""
    host_ttl_seconds: float = Field(default=30.0, ge=5, le=86_400)
    """Seconds without a heartbeat after which other workers take over the runs of a worker or host."""
    web_statement_seconds: float = Field(default=15.0, ge=0, le=3600)
    """Longest database statement of a request, in seconds; longer ones are answered with 503. 0: no limit."""
    trusted_proxies: Networks = []
    """Default: none (in production: this host). Addresses and networks, comma-separated, whose `X-Forwarded-For` and
    `X-Forwarded-Proto` are trusted. `none` trusts no proxy."""
    callback_bytes: int = Field(default=64 * 1024, ge=1024, le=1024 * 1024)
    """Largest body of a callback, in bytes."""
    rate_limit: int = Field(default=0, ge=0, le=1_000_000)
    """Requests per minute of an API key, in each web process. 0: no limit."""

    # --- Certification of tools ---

    uncertified_tools: Literal["allow", "warn", "refuse"] = "allow"
    """What happens with a keyed tool that was not [probed](../how-to/certify-a-tool.md): `allow`, `warn`, `refuse`."""
    probe_days: float = Field(default=90.0, gt=0, le=3650, validation_alias="DURABLEAGENTS_PROBE_TTL")
    """Days for which a probe's certificate is valid."""

    # --- Seals, retention and reports ---

    # Example: `file:///volume/seals.jsonl,https://witness.example.org/seals#token=/run/secrets/witness`
    seal_witnesses: Annotated[list[SealWitness], NoDecode, _read_by(_witnesses)] = []
    """Where [seals](../../durableagents/contrib/seals/README.md) of the record are sent, comma-separated:
    `file:///path/seals.jsonl`, `storage:ALIAS` or `https://host/path#token=/file`."""
    seal_stale_minutes: int = Field(default=15, ge=1, le=10_000)
    """Minutes after which a witness that has not accepted a seal is reported."""
    archive: Path | None = None
    """Existing folder for [archives of runs](../how-to/retention-and-erasure.md), outside the data folder."""
    idempotency_key_days: int | None = Field(default=None, ge=7, le=36_500)
    """Days, at least 7, after which workers remove clients' idempotency keys. None: never."""
    report_schedule: Literal["off", "daily", "weekly", "monthly"] = "monthly"
    """When [reports](../../durableagents/contrib/reports/README.md) are stored: `daily`, `weekly`, `monthly`, `off`."""
    report_recipients: Annotated[Words, AfterValidator(_mail_addresses)] = []
    """Addresses that get mail about stored reports, comma-separated. Needs `DURABLEAGENTS_EMAIL_URL`."""

    # --- Metrics ---

    metrics_token: Annotated[str, _like(r"[!-~]{16,}", "use at least 16 letters, digits and signs, without spaces")] = (
        ""
    )
    """Bearer token for [`/metrics`](metrics.md), at least 16 characters."""
    metrics_open_to: Literal["nobody", "loopback"] = "nobody"
    """`loopback`: requests from this host read `/metrics` without a token."""

    # --- Restored databases ---

    restore_hold: bool = True
    """`0`: a [restored database](../how-to/back-up-and-restore.md) is not recognised, and its workers start at once."""
    restore_head: Path | None = None
    """Default: `restore.head` in `DURABLEAGENTS_DATA`. File on this host with which a restored database is recognised.
    It must survive restarts of the process."""

    # --- Tests of the engine ---

    failpoints: str = ""
    """Crash points of the [step protocol](../explanation/step-protocol.md#crash-points). Refused in production."""
    failpoint_dir: Path | None = None
    """Folder that records which crash points have fired. Refused in production."""
    call_record: Path | None = None
    """File that records each call that is sent, for `crashtest`. Refused in production."""

    @model_validator(mode="before")
    @classmethod
    def _smtp_follows_the_sandbox(cls, values: dict[str, object]) -> dict[str, object]:
        if not values.get("SANDBOX_SMTP_PORT"):
            http = values.get("SANDBOX_PORT") or 8001
            try:
                values["SANDBOX_SMTP_PORT"] = int(str(http)) + 1
            except ValueError:
                # an invalid SANDBOX_PORT is reported by its own field
                values["SANDBOX_SMTP_PORT"] = 8002
        return values

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        ports = {
            "PORT": self.port,
            "SANDBOX_PORT": self.sandbox_port,
            "SANDBOX_SMTP_PORT (mail, by default SANDBOX_PORT + 1)": self.sandbox_smtp_port,
        }
        for (name, port), (other, same) in combinations(ports.items(), 2):
            if port == same:
                raise ValueError(f"{name} and {other} are both {port}: set one of them to another port")
        return self

    @model_validator(mode="after")
    def _crash_points_are_for_tests(self) -> Self:
        if self.is_production and (self.failpoints or self.failpoint_dir):
            raise ValueError("DURABLEAGENTS_FAILPOINTS or DURABLEAGENTS_FAILPOINT_DIR is set in production: unset it")
        if self.is_production and self.call_record:
            raise ValueError("DURABLEAGENTS_CALL_RECORD is set in production: unset it, it is for crash tests")
        if self.failpoints and self.failpoint_dir is None:
            raise ValueError(
                "DURABLEAGENTS_FAILPOINTS needs DURABLEAGENTS_FAILPOINT_DIR, which records which points have fired"
            )
        return self

    @model_validator(mode="after")
    def _mail_has_a_sender(self) -> Self:
        if bool(self.email_url) != bool(self.email_from):
            raise ValueError("DURABLEAGENTS_EMAIL_URL and DURABLEAGENTS_EMAIL_FROM belong together: set both or none")
        return self

    @property
    def mail(self) -> dict[str, Any]:
        """Return Django's mail settings; empty if no mail is sent."""
        if not self.email_url:
            return {}
        url = urlsplit(self.email_url)
        return {
            "EMAIL_HOST": url.hostname,
            "EMAIL_PORT": url.port or MAIL_PORTS[url.scheme],
            "EMAIL_HOST_USER": unquote(url.username or ""),
            "EMAIL_HOST_PASSWORD": unquote(url.password or ""),
            "EMAIL_USE_TLS": url.scheme == "smtp",
            "EMAIL_USE_SSL": url.scheme == "smtps",
        }

    @property
    def base_url(self) -> str:
        """Return the public base URL, also for callbacks."""
        return self.public_url or f"http://127.0.0.1:{self.port}"

    @property
    def push_key_file(self) -> Path:
        """Return the path of the push key (see `manage.py push_key`)."""
        return self.push_key or self.data / "push.pem"

    @property
    def restore_head_file(self) -> Path:
        """Return the path of this host's head file (see durableagents/contrib/restore_hold)."""
        return self.restore_head or self.data / "restore.head"

    @property
    def proxy_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Return the proxies whose headers with clients' addresses are trusted.

        In production, the default is proxies on the same host.
        """
        given = self.trusted_proxies or (["127.0.0.0/8", "::1"] if self.is_production else [])
        return tuple(ip_network(text, strict=False) for text in given if text != "none")

    @property
    def webhook_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Return networks that webhooks may be in, in addition to the public internet."""
        return tuple(ip_network(text, strict=False) for text in self.webhook_addresses if text != "none")

    @property
    def sandbox_url(self) -> str:
        return f"http://127.0.0.1:{self.sandbox_port}"

    @property
    def is_demo(self) -> bool:
        """Return whether one-click sign-in is on. `manage.py up` sets it."""
        return bool(self.demo) and not self.is_production

    @property
    def has_demo(self) -> bool:
        """Return whether the demo's agents and queues are installed."""
        return self.demo is not False and not self.is_production

    @property
    def is_production(self) -> bool:
        return self.stage == "production"


def load() -> Environment:
    """Read the environment and the folder of settings. An empty variable counts as unset. Raises EnvironmentProblem."""
    blank = {name for name, value in os.environ.items() if value == ""}
    names = {field.validation_alias for field in Environment.model_fields.values()}
    for name in blank & names:  # type: ignore[operator]
        del os.environ[name]
    folder = os.environ.get(SETTINGS_DIR)
    try:
        with warnings.catch_warnings():
            # The file can't be read. A missing secret must not be replaced by a default.
            warnings.simplefilter("error", UserWarning)
            return Environment(_secrets_dir=folder)
    except ValidationError as error:
        raise EnvironmentProblem(_in_one_line(error)) from None
    except (UserWarning, SettingsError, OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(f"{SETTINGS_DIR}={folder}: {error.__cause__ or error}") from None


def unread() -> list[str]:
    """Return a line for each variable or settings file with our prefix that nothing reads, to reveal typos."""
    known = {str(field.validation_alias) for field in Environment.model_fields.values()}
    # `up` marks its processes (child_processes.MARKER); tests use a prefix of their own.
    folder = os.environ.get(SETTINGS_DIR)
    names = [*os.environ, *(os.listdir(folder) if folder else ())]
    ours = {name for name in names if name.startswith("DURABLEAGENTS_") and not name.startswith("DURABLEAGENTS_TEST_")}
    problems = []
    for name in sorted(ours - known - {"DURABLEAGENTS_UP"}):
        (meant, *_) = (*get_close_matches(name, known, 1), "")
        problems.append(f"{name} is set, but nothing reads it" + (f": did you mean {meant}?" if meant else ""))
    return problems


def _in_one_line(error: ValidationError) -> str:
    parts = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"])
        message = _wanted(where, item["type"]) or item["msg"].removeprefix("Value error, ")
        if where:
            given = "" if where in _TOLD_WITHOUT_VALUE else f"={item['input']!r}"
            parts.append(f"{where}{given}: {message[:1].lower()}{message[1:]}")
        else:
            parts.append(message)
    return "; ".join(parts)


def _wanted(name: str, problem: str) -> str:
    """Return which values a number or switch accepts; empty for other variables."""
    if problem == "bool_parsing":
        return "must be 1 or 0"
    for field in Environment.model_fields.values():
        if field.validation_alias == name and field.annotation in (int, float):
            bounds = {kind: getattr(each, kind) for each in field.metadata for kind in each.__slots__}
            least = f"above {bounds['gt']}, at most" if "gt" in bounds else f"from {bounds['ge']} to"
            return f"must be a {'whole ' * (field.annotation is int)}number {least} {bounds['le']}"
    return ""


def ensure_directory(path: Path, mode: int = 0o700) -> Path:
    """Create `path` with `mode` if it is missing. An existing directory keeps its mode."""
    try:
        path.mkdir(mode=mode, parents=True)
        # mkdir(2) applies the umask. A strict umask would keep the server's account out of a 0755 directory.
        path.chmod(mode)
    except FileExistsError:
        if not path.is_dir():
            raise EnvironmentProblem(f"{path} is not a directory") from None
    except OSError as error:
        raise EnvironmentProblem(f"cannot create {path}: {error.strerror or error}") from None
    return path


def kept_secret(path: Path, *, size: int = 48, make: Callable[[int], str] = secrets.token_urlsafe) -> str:
    """Return the secret kept in `path` (0600), created from `size` random bytes on first use.

    If processes start at the same time, link(2) publishes one complete file, and the others read that one. Raises
    EnvironmentProblem.
    """
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    except UnicodeDecodeError:
        raise EnvironmentProblem(f"{path} contains no key: it is not text; restore the key from the backups") from None
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {path}: {error.strerror}") from None
    ensure_directory(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        write_private(draft, make(size) + "\n")
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return path.read_text().strip()
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {path}: {error.strerror}") from None


def write_private(path: Path, text: str) -> None:
    """Write a new file durably with mode 0600. Never replaces an existing one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def replace_private(path: Path, text: str) -> None:
    """Write `text` to `path` (0600) atomically."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        write_private(draft, text)
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise EnvironmentProblem(f"cannot write {path}: {error.strerror}") from None
