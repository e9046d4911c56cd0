"""Guessing passwords is slowed down, and nobody is locked out by somebody else's guesses."""

from __future__ import annotations

import uuid

import pytest
from django.contrib.auth.models import User
from django.test import Client

pytestmark = pytest.mark.django_db


def test_after_ten_wrong_passwords_even_the_right_one_has_to_wait() -> None:
    name = f"guessed-{uuid.uuid4().hex[:8]}"
    User.objects.create_user(name, password="the right one")
    guesser = Client(REMOTE_ADDR="10.0.0.1")

    for _ in range(10):
        assert guesser.post("/login", {"username": name, "password": "wrong"}).status_code == 400
    answer = guesser.post("/login", {"username": name, "password": "the right one"})

    assert answer.status_code == 429
    assert int(answer["Retry-After"]) > 0
    assert b"Too many failed tries" in answer.content
    assert "_auth_user_id" not in guesser.session


def test_somebody_at_another_address_still_gets_in() -> None:
    name = f"guessed-{uuid.uuid4().hex[:8]}"
    User.objects.create_user(name, password="the right one")
    guesser, owner = Client(REMOTE_ADDR="10.0.0.2"), Client(REMOTE_ADDR="10.0.0.3")

    for _ in range(11):
        guesser.post("/login", {"username": name, "password": "wrong"})

    assert owner.post("/login", {"username": name, "password": "the right one"}).status_code == 302
