"""Comparisons of a head with a database, and the head file. Pure, but for the file."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from durableagents.contrib.restore_hold import heads
from durableagents.contrib.restore_hold.comparing import Adopt, Database, Found, Hold, compare, lsn_text
from durableagents.contrib.restore_hold.heads import Head, HeadDamaged

HERE, ELSEWHERE, LINE, HALT = (UUID(int=n) for n in (1, 2, 3, 4))
HEAD = Head(HERE, "7713773610774973556", timeline=2, lsn=0x1_0B0B_068, line=LINE, number=500)
DATABASE = Database(
    system=HEAD.system,
    timeline=2,
    lsn=HEAD.lsn,
    line=LINE,
    number=500,
    host=HERE,
    host_name="one",
    mark_timeline=2,
    is_empty=False,
    is_vouched=False,
    accepted=None,
    is_accepted=False,
)
WAITING = replace(HEAD, waits_for=HALT)


def test_each_difference_has_its_consequence() -> None:
    damaged = HeadDamaged("restore.head is damaged")
    cases: list[tuple[str, Any, dict[str, Any], Any]] = [
        ("the same", HEAD, {}, Found),
        ("workers went on before the file was written", HEAD, {"number": 501, "lsn": HEAD.lsn + 9}, Found),
        ("promoted without a loss", HEAD, {"timeline": 3, "lsn": HEAD.lsn + 1}, Adopt),
        ("promoted, which another host has seen", HEAD, {"timeline": 3, "line": uuid4(), "accepted": 500}, Found),
        ("promoted without the last mark", HEAD, {"timeline": 3, "number": 499, "lsn": HEAD.lsn + 9}, "behind"),
        ("restored with pg_dump into the same cluster", HEAD, {"number": 12, "lsn": HEAD.lsn + 9}, "behind"),
        ("an older timeline", HEAD, {"timeline": 1}, "behind"),
        ("pg_resetwal", HEAD, {"lsn": HEAD.lsn - 1}, "behind"),
        ("another cluster", HEAD, {"system": "1"}, "other-system"),
        ("another installation's database", HEAD, {"line": uuid4(), "number": 9000}, "other-database"),
        ("a database that was never marked", HEAD, {"line": None, "number": 0}, "other-database"),
        ("a line that an operator ended, as far as this head", HEAD, {"line": uuid4(), "accepted": 500}, Found),
        ("a line that an operator ended before this head", HEAD, {"line": uuid4(), "accepted": 499}, "behind"),
        ("another host went further", HEAD, {"number": 501, "host": ELSEWHERE, "host_name": "two"}, "unconfirmed"),
        ("another host went further, and is here", HEAD, {"number": 501, "host": ELSEWHERE, "is_vouched": True}, Found),
        ("no file on a fresh machine", None, {}, "no-head"),
        ("no file, and a worker of another host is here", None, {"is_vouched": True}, Adopt),
        ("no file, and nothing was ever acknowledged", None, {"line": None, "number": 0}, Adopt),
        ("a damaged file", damaged, {}, "damaged-head"),
        ("a damaged file, and a worker of another host is here", damaged, {"is_vouched": True}, Adopt),
        ("a file of before, and an empty database", HEAD, {"system": "1", "is_empty": True}, Adopt),
        ("waiting", replace(WAITING, number=501), {}, "behind"),
        ("waited, and the hold is lifted", replace(WAITING, number=501), {"is_accepted": True}, Adopt),
        ("waited without a head, and the hold is lifted", Head(HERE, waits_for=HALT), {"is_accepted": True}, Adopt),
        ("waits, and its head is there after all", WAITING, {}, Found),
    ]
    wrong = []
    for name, head, changed, expected in cases:
        verdict = compare(head, replace(DATABASE, **changed))
        is_right = verdict.reason == expected if isinstance(verdict, Hold) else type(verdict) is expected
        wrong += [] if is_right else [f"{name}: {verdict}"]
    assert not wrong


def test_a_web_process_holds_only_for_what_its_own_head_contradicts() -> None:
    assert compare(None, DATABASE, sends=False) == Found()
    assert compare(HEAD, replace(DATABASE, number=501, host=ELSEWHERE), sends=False) == Found()
    assert isinstance(compare(HEAD, replace(DATABASE, number=499), sends=False), Hold)


@pytest.fixture
def file(tmp_path: Path, settings: Any) -> Path:
    settings.DURABLEAGENTS = settings.DURABLEAGENTS.model_copy(update={"restore_head": tmp_path / "here" / "my.head"})
    return tmp_path / "here" / "my.head"


def test_a_head_is_read_as_it_was_written(file: Path) -> None:
    assert heads.read() is None
    for head in (HEAD, WAITING, Head(HERE)):
        with heads.locked():
            heads.write(head)
        assert heads.read() == head
    assert file.stat().st_mode & 0o777 == 0o600
    assert lsn_text(HEAD.lsn) == "0/10B0B068"


def test_a_damaged_file_is_never_taken_for_a_head(file: Path) -> None:
    with heads.locked():
        heads.write(HEAD)
    whole = file.read_bytes()
    forged = json.loads(whole)
    forged["head"]["number"] = 1
    texts = [b"", whole[:40], whole.replace(b"500", b"400"), b"\xff" * 9, b"[]", b"{}" * 9000, b"[" * 4000]
    texts += [json.dumps(forged).encode(), json.dumps({"head": 1, "sha256": ""}).encode()]
    for text in texts:
        file.write_bytes(text)
        with pytest.raises(HeadDamaged):
            heads.read()


def test_a_write_that_fails_leaves_the_head_of_before(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with heads.locked():
        heads.write(HEAD)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), heads.locked():
        heads.write(replace(HEAD, number=501))
    assert heads.read() == HEAD and {each.name for each in file.parent.iterdir()} == {"my.head", "my.head.lock"}
