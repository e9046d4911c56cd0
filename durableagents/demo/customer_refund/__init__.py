"""Refunds to customers: an agent in which all that people can do with a question can be tried. Its gate says how much it
is about, which fields people may change, how long they have and whom it goes to if nobody answers.

Rules that administrators set (durableagents/demo/oversight.py) is data of the installation.
"""

from durableagents.demo.customer_refund.agent import agent

__all__ = ["agent"]
