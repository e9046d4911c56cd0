"""A fleet in this process, without workers."""

from tests.system.fleet.conftest import _no_link_left_open

__all__ = ["_no_link_left_open"]
