"""Releases on an agent's page: its versions, closing and opening one, and the ramp between two."""
