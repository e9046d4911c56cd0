"""Seeded bugs in what tests of agents go by: an oracle, a replay or an export that lies is worse than none."""

from __future__ import annotations

from tests.crash.mutant import Mutant

ORACLE, REPLAYING, REDACTION = (
    "durableagents/testing/oracle.py",
    "runs/engine/recordings/replaying.py",
    "runs/engine/recordings/redaction.py",
)
FOLDER, SCRIPTS, READER = (
    "runs/queries/recordings/folder.py",
    "runs/engine/recordings/scripts.py",
    "runs/journal/reader.py",
)
STORIES, REPLAYS, EXPORT, TO_TEST = (
    f"tests/testing/test_{name}.py" for name in ("harness", "replays", "export", "to_test")
)

TESTING = [
    Mutant("the oracle counts by key alone", ORACLE, "return (self.tool, self.key, body) if self.key is not None else (self.tool, str(id(self)))", "return (self.tool, str(self.key))", f"{STORIES} -k oracle"),
    Mutant("the oracle believes the record", ORACLE, "        self.happened = True\n        if after", "        self.happened = after is None\n        if after", f"{STORIES} -k oracle"),
    Mutant("a turn that is on record is said again", "durableagents/testing/minds.py", "                self._cursor[name] = self._cursor.get(name, 0) + 1\n", "                pass\n", f"{STORIES} -k not_said_again"),
    Mutant("a replay passes over what the code leaves out", REPLAYING, "    skipped = known.unreached()\n", "    skipped: list[str] = []\n", f"{REPLAYS} -k otherwise"),
    Mutant("a replay passes over other arguments", REPLAYING, "            return first_misfit(known, asked, self._placeholders)", "            return None", f"{REPLAYS} -k otherwise"),
    Mutant("a replay passes over what the code asks for at the end", REPLAYING, "    if ends and visit.fresh:", "    if ends and False:", f"{REPLAYS} -k otherwise"),
    Mutant("a replay passes over another state", REPLAYING, "                misfit = first_misfit(recording.after, state, recording.placeholders)", "                misfit = None", f"{REPLAYS} -k otherwise"),
    Mutant("the end of a record is a difference", REPLAYING, "    if record.what is None and what not in _NOT_AWAITED", "    if what not in _NOT_AWAITED", f"{REPLAYS} -k same_code"),
    Mutant("a private value leaves inside another text", REDACTION, "                    text = text.replace(found, written(self._stand_in(private)))", "                    text = self._stand_in(private) if text == private else text", f"{EXPORT} -k private"),
    Mutant("a fork's question leaves as people read it", REDACTION, "(\"about\",) if is_a_forks else ()", "()", "tests/testing/test_secrets_in_texts.py -k forks_question"),
    Mutant("nobody looks into what a model writes as JSON", REDACTION, "    return text.lstrip()[:1] in (\"{\", \"[\")", "    return False", "tests/testing/test_secrets_in_texts.py -k no_tool_takes"),
    Mutant("what an annotation declares as secret is seen in schemas only", "runs/queries/secret_fields.py", "[*found, *_in_annotation(model, \"\", ())]", "found", "tests/testing/test_secret_fields.py -k wherever_it_stands"),
    Mutant("what comes for a paused run in a story wakes it", "durableagents/testing/family.py", "            self.held, self.run.state = \"running\", \"paused\"\n", "            self.held = \"\"\n", "tests/testing/test_harness.py -k paused"),
    Mutant("names that are secret leave", REDACTION, "(self._stand_in(name) if is_secret else self._in_text(name))", "name", "tests/testing/test_secret_fields.py -k no_redacted_record"),
    Mutant("a version that isn't here leaves as it is", "runs/queries/recordings/kin.py", "        raise BadRecording(\n            f\"{graph_id} is not installed here", "        return Secrets()\n        raise BadRecording(\n            f\"{graph_id} is not installed here", "tests/testing/test_secret_fields.py -k not_installed"),
    Mutant("an export takes what came meanwhile with it", "runs/queries/recordings/folder.py", "            _must_be_free(old, refresh=True)\n", "            _must_be_free(target, refresh=True)\n", "tests/testing/test_secret_fields.py -k not_lost"),
    Mutant("an export has the keys", REDACTION, "        return replace(event, payload=kept | {\"key\": None})", "        return replace(event, payload=kept | {\"key\": event.payload.get(\"key\")})", f"{EXPORT} -k everything"),
    Mutant("one busy version takes all the places", "runs/queries/recordings/picking.py", "            yield strata[name].popleft()\n            if not strata[name]:\n                del strata[name]\n", "            while strata[name]:\n                yield strata[name].popleft()\n            del strata[name]\n", f"{EXPORT} -k its_turn"),
    Mutant("an export replaces what is somebody else's", FOLDER, "    others = [name for name in held if name not in ours]\n", "    others: list[str] = []\n", f"{EXPORT} -k not_over_anything"),
    Mutant("a test of a run lets a call be left out", SCRIPTS, "    story.assert_effects(EFFECTS{order})\n", "", f"{TO_TEST} -k otherwise"),
    Mutant("a test of a run is given untold", SCRIPTS, "    if problem is not None:\n        raise BadRecording", "    if False:\n        raise BadRecording", f"{TO_TEST} -k would_not_pass"),
    Mutant("a newer checkpoint is gone on from", READER, "STATES.upgraded(schema_version, unpack(state))", "unpack(state)", "tests/runs/test_formats.py"),
]  # fmt: skip
