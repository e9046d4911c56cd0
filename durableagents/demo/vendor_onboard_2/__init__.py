"""Vendor onboarding, version 2: as version 1, and it takes back what it did when it can't come to its end.

An installation has it that names this package in `DURABLEAGENTS_AGENTS`.
"""

from durableagents.demo.vendor_onboard_2.agent import agent

__all__ = ["agent"]
