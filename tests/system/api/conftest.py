from tests.integration.api.conftest import auditor, caller, integrator, operator, order_agent, start

__all__ = ["auditor", "caller", "integrator", "operator", "order_agent", "start"]
