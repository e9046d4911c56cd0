"""Policies in the database: rows, conditions and evaluation."""
