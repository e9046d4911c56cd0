"""Runs whole Pydantic AI agents in a `think`; entry points are `declared` and `running`."""
