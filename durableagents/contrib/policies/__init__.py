"""Policies: administrators' rules that allow, deny or require approval of calls. See README.md."""
