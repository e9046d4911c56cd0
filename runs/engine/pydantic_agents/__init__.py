"""Whole Pydantic AI agents in a `think`: the engine's nodes and checks come in by `declared` and `running`; nobody else
knows that library's agents."""
