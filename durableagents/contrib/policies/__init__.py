"""Policies as data: administrators' rules that allow, gate or refuse calls."""
