"""The settings of the tests without the apps of durableagents/contrib that WITHOUT names (`make test-core`)."""

from tests.settings import *  # noqa: F403
from tests.system.without import INSTALLED_APPS  # noqa: F401
