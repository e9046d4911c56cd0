"""Refunds to customers: an agent for trying everything that people can do with an approval request.

Its gate declares the amount in question, the fields that people may change, the deadline, and the queue to escalate to
if nobody answers. Rules set by administrators are data of the installation (see durableagents/demo/oversight.py).
"""

from durableagents.demo.customer_refund.agent import agent

__all__ = ["agent"]
