"""Django's settings. Settings that differ between installations come from env.py."""

from __future__ import annotations

import gc
import warnings
from urllib.parse import urlsplit

from csp.constants import NONE, SELF
from django.conf import global_settings

from durableagents import databases, env
from durableagents.demo import registration as demo

# The modules that Django loads are never freed. Disabling garbage collection while loading them saves a quarter of the
# start-up time. durableagents/apps.py, loaded last, enables it again.
gc.disable()

DURABLEAGENTS = env.load()
_PRODUCTION = DURABLEAGENTS.is_production

# --- secrets: generated once, kept in the data folder, never in the code ---------------------
SECRET_KEY = DURABLEAGENTS.secret_key or env.kept_secret(DURABLEAGENTS.data / "secret_key")
# 32 random bytes as base64url without padding, which encrypt the secret store of tools.
DURABLEAGENTS_MASTER_KEY_FILE = DURABLEAGENTS.data / "master.key"
env.kept_secret(DURABLEAGENTS_MASTER_KEY_FILE, size=32)

# --- agents, queues, people: the demo's, and the installation's own ---
# The demo's agents are not part of a production installation. The demo's queues are, unless others are configured. With
# DURABLEAGENTS_DEMO=0 there are neither agents nor queues of the demo.
_HAS_QUEUES = DURABLEAGENTS.demo is not False and not (_PRODUCTION and DURABLEAGENTS.queues)
DURABLEAGENTS_AGENTS = [*(demo.AGENTS if DURABLEAGENTS.has_demo else ()), *DURABLEAGENTS.agents]
DURABLEAGENTS_QUEUES = {**(demo.QUEUES if _HAS_QUEUES else {}), **DURABLEAGENTS.queues}
# Name → role and description of the one-click accounts, which exist while `is_demo`.
DURABLEAGENTS_PEOPLE = demo.PEOPLE

# --- what is installed -----------------------------------------------------------------------
INSTALLED_APPS = [
    "durableagents.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    "rest_framework",
    "drf_spectacular",
    "django_q",
    "pgtrigger",
    "ledger",
    "runs",
    "approvals",
    # Only tables and parts of django-allauth are used; no URLs, pages or middleware. See
    # durableagents/contrib/accounts/README.md.
    "durableagents.contrib.accounts.apps.AccountParts",
    "durableagents.contrib.accounts.apps.FactorParts",
    "durableagents.contrib.accounts.apps.ProviderParts",
    "durableagents.contrib.accounts",
    "durableagents.contrib.bulk",
    "durableagents.contrib.calendars",
    "durableagents.contrib.casework",
    "durableagents.contrib.certify",
    "durableagents.contrib.change_control",
    "durableagents.contrib.documents",
    "durableagents.contrib.encryption",
    "durableagents.contrib.large_values",
    "durableagents.contrib.limits",
    "durableagents.contrib.seals",
    "durableagents.contrib.retention",
    "durableagents.contrib.evidence",
    "durableagents.contrib.forks",
    "durableagents.contrib.halts",
    "durableagents.contrib.replay",
    "durableagents.contrib.reports",
    "durableagents.contrib.metrics",
    "durableagents.contrib.policies",
    "durableagents.contrib.notifications",
    "durableagents.contrib.releases",
    "durableagents.contrib.restore_hold",
    "durableagents.contrib.schedules",
    "durableagents.contrib.screening",
    "durableagents.contrib.search",
    "durableagents.contrib.secrets",
    "durableagents.contrib.standing_approvals",
    "durableagents.contrib.step_up",
    "durableagents.contrib.tracing",
    "durableagents.contrib.webhooks",
    "durableagents",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "durableagents.server.utf8_query.ReadableQuery",
    "durableagents.identity.sessions.Sessions",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "durableagents.identity.sessions.KeepSignedIn",
    "durableagents.identity.people.WhoAsks",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "durableagents.urls"
ASGI_APPLICATION = "durableagents.server.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DEBUG = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [env.CHECKOUT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

# --- database --------------------------------------------------------------------------------
DATABASES = databases.django_databases(DURABLEAGENTS)
# The role to which grants.py grants rights after each migration. None: a single role does everything (with a warning).
DURABLEAGENTS_RUNTIME_ROLE = databases.runtime_role(DURABLEAGENTS)

# --- the web ---------------------------------------------------------------------------------
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]", *DURABLEAGENTS.allowed_hosts]
AUTHENTICATION_BACKENDS = ["durableagents.identity.password_check.PasswordBackend"]
LOGIN_URL = "/login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
    {"NAME": "durableagents.identity.password_check.NotRepeated"},
]
# The link is mailed or handed over by an administrator, which takes time. The link can be used once.
PASSWORD_RESET_TIMEOUT = 4 * 3600
# New hashes use the first hasher. Hashes of other hashers are renewed when their owner signs in.
PASSWORD_HASHERS = [
    "durableagents.identity.accounts.Argon2",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]

# --- second factor and single sign-on ----------------------------------------------------------
MFA_ADAPTER = "durableagents.contrib.accounts.sealing.Adapter"
MFA_TOTP_ISSUER = "Durable Agents"
MFA_TOTP_TOLERANCE = 1  # clocks may differ by one 30-second step
SOCIALACCOUNT_ADAPTER = "durableagents.contrib.accounts.oidc.Wire"
SOCIALACCOUNT_STORE_TOKENS = False

STATIC_URL = "/static/"
STATICFILES_DIRS = [env.CHECKOUT / "static"]
# A settings module that imports this one adds storages for archives, large values and witnesses.
STORAGES = dict(global_settings.STORAGES)
# Static files are served from the source folders: `make up` has no build step and no collectstatic.
WHITENOISE_USE_FINDERS = True
WHITENOISE_MIMETYPES = {".webmanifest": "application/manifest+json"}
WHITENOISE_AUTOREFRESH = not _PRODUCTION

# The page's own origin is spelt out because 'self' covers ws: only in newer browsers.
_PUBLIC = urlsplit(DURABLEAGENTS.public_url or "")
_OWN_SOCKETS = (
    [f"{_PUBLIC.scheme.replace('http', 'ws')}://{_PUBLIC.netloc}"] * bool(_PUBLIC.netloc)
    if _PRODUCTION
    else [f"{scheme}://{host}:{DURABLEAGENTS.port}" for scheme in ("ws", "wss") for host in ("127.0.0.1", "localhost")]
)
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF, *_OWN_SOCKETS],
        "object-src": [NONE],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "form-action": [SELF],
    }
}
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"

# The demo uses plain http on loopback; production is behind TLS. Cookies ignore ports, so the name includes the port,
# which keeps the sessions of two installations on one host apart.
SESSION_COOKIE_NAME = f"durableagents_session_{DURABLEAGENTS.port}"
CSRF_COOKIE_NAME = f"durableagents_csrf_{DURABLEAGENTS.port}"
SESSION_ENGINE = "durableagents.identity.people"
SESSION_COOKIE_AGE = 12 * 3600  # maximum; much less without activity, see sessions.py
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = _PRODUCTION
CSRF_COOKIE_SECURE = _PRODUCTION
SECURE_SSL_REDIRECT = _PRODUCTION
# Probes and callbacks from local tools come without TLS. They can't follow a redirect and send their body again.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$", r"^api/v1/callbacks/"]
SECURE_HSTS_SECONDS = 31_536_000 if _PRODUCTION else 0
# Neither subdomains nor preloading (W005, W021), which would bind other hosts of the same company.
# W009 asks for a longer secret key than needed and doesn't name the variable (see checks.py).
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W009", "security.W021"]
# There is no SECURE_PROXY_SSL_HEADER, because `proxies.py` takes the scheme from trusted proxies only. Bodies larger
# than these are refused before parsing; server/limits.py limits those of starts.
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_621_440

REST_FRAMEWORK = {
    "EXCEPTION_HANDLER": "ledger.web.problems.exception_handler",
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "durableagents.identity.auth.ApiKeyAuthentication",
        "durableagents.identity.auth.HeaderSession",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["durableagents.identity.auth.HasRole"],
    "DEFAULT_THROTTLE_CLASSES": ["durableagents.identity.rate.KeyRate"],
    "DEFAULT_SCHEMA_CLASS": "durableagents.openapi.Operations",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    # Choices stay inline, because the hook would name them by field and merge equal names.
    "POSTPROCESSING_HOOKS": [],
    "TITLE": "Durable Agents",
    "DESCRIPTION": "Start and control runs, decide approvals, and settle unknown outcomes.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    # The schema page may load nothing from other sites (see the content security policy).
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v[0-9]+",
    "SERVERS": [{"url": "/"}],
}

# --- mail: only where a server is named, see durableagents/outgoing/mail.py ----------------------------------
EMAIL_BACKEND = (
    "durableagents.outgoing.mail.Backend" if DURABLEAGENTS.mail else "django.core.mail.backends.dummy.EmailBackend"
)
DEFAULT_FROM_EMAIL = SERVER_EMAIL = DURABLEAGENTS.email_from or "webmaster@localhost"
EMAIL_TIMEOUT = 10
EMAIL_HOST = DURABLEAGENTS.mail.get("EMAIL_HOST", "localhost")
EMAIL_PORT = DURABLEAGENTS.mail.get("EMAIL_PORT", 25)
EMAIL_HOST_USER = DURABLEAGENTS.mail.get("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = DURABLEAGENTS.mail.get("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_TLS = DURABLEAGENTS.mail.get("EMAIL_USE_TLS", False)
EMAIL_USE_SSL = DURABLEAGENTS.mail.get("EMAIL_USE_SSL", False)

# --- the queue -------------------------------------------------------------------------------
# Each cluster has one worker process with many runs in it; the supervisor runs several clusters. Each setting that
# looks extreme disables a way in which django-q2 ends or repeats our work: its recycling ends a worker with all its
# runs, its timeout kills one, its retry runs a task twice, its prefetch hands tasks to a process that may be dead.
# Leases decide which worker has a run, not the queue. The missing timeout is intentional; django-q2 warns about it on
# every import.
warnings.filterwarnings("ignore", message="Retry and timeout are misconfigured")
Q_CLUSTER = {
    "name": "durableagents",
    "broker_class": "runs.workers.q2_broker.DoorbellBroker",
    "orm": "default",
    "workers": 1,
    "queue_limit": 1,
    "bulk": 1,
    "recycle": 2_000_000_000,
    "max_rss": None,
    "timeout": None,
    "retry": 2_000_000_000,
    "max_attempts": 1,
    "ack_failures": True,
    "save_limit": -1,
    "catch_up": False,
    "scheduler": False,
    "poll": 1,
    "guard_cycle": 0.5,
    "label": "Queue",
}

# --- time, language, logs --------------------------------------------------------------------
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
LANGUAGE_CODE = "en"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"text": {"()": "durableagents.logs.OneLine"}, "json": {"()": "durableagents.logs.OneObject"}},
    "filters": {
        "context": {"()": "durableagents.logs.Context"},
        "no_links": {"()": "durableagents.logs.LinksStaySecret"},
        "not_ready_is_an_answer": {"()": "durableagents.logs.NotReadyIsAnAnswer"},
        "outages_are_said_elsewhere": {"()": "durableagents.logs.OutagesAreSaidElsewhere"},
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": DURABLEAGENTS.log_format,
            "filters": ["context", "no_links"],
        }
    },
    "root": {"handlers": ["stderr"], "level": DURABLEAGENTS.log_level},
    "loggers": {
        # A 4xx is the caller's mistake and is answered with details, so only 5xx is logged.
        "django.request": {"level": "ERROR", "filters": ["not_ready_is_an_answer", "outages_are_said_elsewhere"]},
        # Unreadable requests are answered with 400 or 413. A traceback in the log would help nobody.
        **{
            f"django.security.{unreadable}": {"level": "CRITICAL"}
            for unreadable in ("DisallowedHost", "RequestDataTooBig", "TooManyFieldsSent", "TooManyFilesSent")
        },
        # Invalid HTTP is answered. A log line for each would let anybody fill the disk.
        "durableagents.server.bounded_protocols": {"level": "ERROR"},
        "opentelemetry": {
            "level": "CRITICAL"
        },  # durableagents/contrib/tracing itself logs when the collector is unreachable
        "httpx": {"level": "WARNING"},
        "httpx2": {"level": "WARNING"},
        "fido2": {"level": "WARNING"},  # this logger would log each new passkey
        "asyncio": {"level": "WARNING"},
    },
}
