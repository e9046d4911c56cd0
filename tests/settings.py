"""The project's settings with separate data, so that `make test` runs next to `make up`.

The developer's environment is put aside first; every process of the test run inherits what is set here.
"""

import os
import tempfile
from pathlib import Path

from tests.keys import MASTER_KEY

_OWN = (
    "DATABASE_URL DATABASE_OWNER_URL DURABLEAGENTS_DB_ROLE DURABLEAGENTS_WORKERS "
    "DURABLEAGENTS_SLOTS DURABLEAGENTS_AGENTS DURABLEAGENTS_QUEUES DURABLEAGENTS_MODEL DURABLEAGENTS_SECRET_KEY "
    "DURABLEAGENTS_SERVE DURABLEAGENTS_DRAIN_ONLY "
    "DURABLEAGENTS_ENV DURABLEAGENTS_DEMO PORT SANDBOX_PORT SANDBOX_SMTP_PORT DATABASE_DIRECT_URL "
    "DURABLEAGENTS_DRAIN_SECONDS DURABLEAGENTS_WEB_STATEMENT_SECONDS "
    "DURABLEAGENTS_HOST_TTL_SECONDS DURABLEAGENTS_FAILPOINTS DURABLEAGENTS_FAILPOINT_DIR "
    "DURABLEAGENTS_TRUSTED_PROXIES DURABLEAGENTS_CALLBACK_BYTES DURABLEAGENTS_CONNECTIONS "
    "DURABLEAGENTS_CONNECTIONS_PER_ADDRESS DURABLEAGENTS_SCREENS "
    "DURABLEAGENTS_UNCERTIFIED_TOOLS DURABLEAGENTS_PROBE_TTL DURABLEAGENTS_CALL_RECORD "
    "DURABLEAGENTS_REDACT DURABLEAGENTS_EMAIL_URL DURABLEAGENTS_EMAIL_FROM "
    "DURABLEAGENTS_WEBHOOK_NETWORKS "
    "DURABLEAGENTS_REQUIRE_SECOND_FACTOR DURABLEAGENTS_OIDC"
)
if "DURABLEAGENTS_TEST_DATA" not in os.environ:
    for _name in _OWN.split():
        os.environ.pop(_name, None)
    os.environ["DURABLEAGENTS_TEST_DATA"] = tempfile.mkdtemp(prefix="durableagents-test-")
    os.environ["DURABLEAGENTS_TEST_OWNER_PID"] = str(os.getpid())
    _key = Path(os.environ["DURABLEAGENTS_TEST_DATA"], "master.key")
    _key.write_text(MASTER_KEY)
    _key.chmod(0o600)
os.environ["DURABLEAGENTS_DATA"] = os.environ["DURABLEAGENTS_TEST_DATA"]

from durableagents.settings import *  # noqa: E402, F403

# Slow password hashing protects; in tests it is only slow.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
