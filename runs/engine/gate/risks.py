"""How risky a tool's author says that it is. Pure."""

RISKS = ("", "low", "medium", "high")  # of a tool, if it says; the least first
