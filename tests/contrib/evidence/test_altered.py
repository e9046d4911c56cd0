"""Bundles that somebody changed: every byte counts, and what was changed is named."""

from __future__ import annotations

import json
import random
import sys
import zipfile
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from tests.contrib.evidence.conftest import Saved, bundle_of, verified
from tests.contrib.evidence.rewriting import (
    events_of,
    files_of,
    signed_again,
    with_events,
    zipped,
    zipped_otherwise,
)
from tests.integration.approvals.setup import buying
from tests.integration.runs.stage import Stage
from tests.tiers import many
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
SEED = 35
PER_FILE = many(60, 6)
EVENT_FIELDS = ("seq", "epoch", "at", "clear", "stored", "stored_sha256", "prev", "hash", "payload")


def test_any_changed_byte_is_found_and_its_file_named(paid: UUID, saved: Saved) -> None:
    """Also those of the ZIP file itself."""
    chance, bundle = random.Random(SEED), bundle_of(paid)
    files = files_of(bundle)
    for name, content in files.items():
        start = bundle.index(content)
        for _ in range(min(PER_FILE, len(content))):
            at = start + chance.randrange(len(content))
            verdict = verified(saved(_flipped(bundle, at, chance)))
            assert verdict.code == 2 and name in verdict.text, (name, at, verdict.text)
    inside = {
        at
        for content in files.values()
        if (start := bundle.index(content))
        for at in range(start, start + len(content))
    }
    outside = sorted(set(range(len(bundle))) - inside)
    for at in chance.sample(outside, min(PER_FILE * 10, len(outside))):
        assert verified(saved(_flipped(bundle, at, chance))).code == 2, at


def _flipped(bundle: bytes, at: int, chance: random.Random) -> bytes:
    changed = bytearray(bundle)
    changed[at] ^= chance.randrange(1, 256)
    return bytes(changed)


def test_a_changed_event_is_named_even_if_the_manifest_fits_again(paid: UUID, saved: Saved) -> None:
    files = files_of(bundle_of(paid))
    for n in range(len(events_of(files, paid))):
        for name in EVENT_FIELDS:
            changed = with_events(files, paid, partial(_change, n, name))
            if changed == files:
                continue
            verdict = verified(saved(zipped(signed_again(changed))))
            assert verdict.code == 2 and f"event {n + 1} " in verdict.text, (n, name, verdict.text)


def _change(n: int, name: str, events: list[Any]) -> None:
    event = events[n]
    match event.get(name):
        case None:
            if name == "payload":
                event[name] = {"new": True}
        case str() as text:
            event[name] = text[:-1] + ("0" if text[-1] != "0" else "1") if name != "clear" else text.replace(":", ": ")
        case int() as number:
            event[name] = number + 1
        case dict() as value:
            event[name] = value | {"new": True}


@pytest.fixture
def attacks(paid: UUID, stage: Stage, tools: Toolbox) -> dict[str, tuple[bytes, str]]:
    """Return bundles that were changed as a whole, each with what has to be said of it."""
    bundle = bundle_of(paid)
    files = files_of(bundle)
    other = stage.start(buying(tools, 6000)).pk
    stage.drive()
    spliced_run = files_of(bundle_of(other))
    events, foreign = f"runs/{paid}/events.jsonl", f"runs/{other}/events.jsonl"
    mixed = files | {events: spliced_run[foreign]}
    added = dict(list(files.items())[:-2]) | {foreign: spliced_run[foreign]} | dict(list(files.items())[-2:])
    backwards = dict(reversed(list(files.items())))
    bomb = files | {events: bytes(5_000_000)}
    without = {name: content for name, content in files.items() if name != events}
    return {
        "truncated": (bundle[:-200], "truncated"),
        "cut to nothing": (b"", "not a bundle"),
        "extended": (bundle + b"more", "not a bundle"),
        "with bytes before it": (b"#!/bin/sh\n" + bundle, "altered"),
        "reordered": (zipped(backwards), "another order"),
        "spliced": (zipped(mixed), events),
        "spliced and signed again": (zipped(signed_again(mixed)), f"run {paid}: event 1"),
        "with another run's file": (zipped(added), f"run {other} is not in the manifest"),
        "zipped again": (zipped_otherwise(files), "zipped again"),
        "compressed": (zipped_otherwise(files, zipfile.ZIP_DEFLATED), "compressed"),
        "a bomb": (zipped_otherwise(bomb, zipfile.ZIP_DEFLATED), "compressed"),
        "without a file": (zipped(without), f"{events} is missing"),
        "with a path outside": (zipped(files | {"../evil": b""}), "altered"),
        "no bundle": (zipped({"a": b""}), "manifest.json is missing"),
    }


def test_what_was_changed_as_a_whole_is_refused_and_named(attacks: dict[str, tuple[bytes, str]], saved: Saved) -> None:
    for name, (bundle, value) in attacks.items():
        verdict = verified(saved(bundle))
        assert verdict.code == 2 and value in verdict.text, (name, verdict.text)
        assert "proven." not in verdict.text


def test_an_altered_payment_is_told_even_by_somebody_who_signs_everything_again(paid: UUID, saved: Saved) -> None:
    """Without the sealed bytes, all of a bundle could be made up, and the key given tells so."""
    files = files_of(bundle_of(paid))
    real_key = json.loads(files["keys.json"])[-1]["public_key"]
    assert verified(saved(zipped(files)), "--key", real_key).code == 0

    def pay_more(events: list[Any]) -> None:
        for event in events:
            text = json.dumps(event["payload"]).replace("5000", "9000")
            event["payload"] = json.loads(text)

    forged = zipped(signed_again(with_events(files, paid, pay_more)))
    verdict = verified(saved(forged), "--key", real_key)
    assert verdict.code == 2
    assert "is not the key you gave" in verdict.text and "differs from its stored bytes" in verdict.text


def test_hostile_json_is_an_answer_and_no_traceback(paid: UUID, saved: Saved) -> None:
    files = files_of(bundle_of(paid))
    chance = random.Random(SEED)
    values = [None, True, -1, 10**30, 1e400, "", "\x1b[2J", [], {}, [[]] * 3, {"name": None}, "0" * 64, ["x"]]
    for name in [each for each in files if each.endswith((".json", ".jsonl"))]:
        for _ in range(many(60, 8)):
            documents = [json.loads(line) for line in files[name].splitlines()] if name.endswith("l") else None
            document = documents if documents is not None else json.loads(files[name])
            _spoil(document, chance, values)
            text = (
                b"".join(json.dumps(each).encode() + b"\n" for each in documents)
                if documents is not None
                else json.dumps(document).encode()
            )
            changed = files | {name: text}
            if name not in ("manifest.json", "signature.json", "keys.json"):
                changed = signed_again(changed)
            verdict = verified(saved(zipped(changed)))
            assert verdict.code in (0, 1, 2) and "\x1b" not in verdict.text
    deep = files | {"keys.json": b"[" * sys.getrecursionlimit() * 20}
    assert verified(saved(zipped(deep))).code == 2


def _spoil(value: Any, chance: random.Random, values: list[Any]) -> None:
    """Replace one part, at a random depth, by something else."""
    while isinstance(value, (dict, list)) and value:
        key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
        inner = value[key]
        if not isinstance(inner, (dict, list)) or not inner or chance.random() < 0.3:
            value[key] = chance.choice(values)
            return
        value = inner
