"""The shipped hooks: what they find, and what they leave alone."""

from __future__ import annotations

import time
from typing import Any

from durableagents import Piece, prompt_injection_markers
from ledger import events as e
from runs.engine.canonical import has_at_most
from runs.engine.content.hooks import HIDDEN_CHARACTERS, MAX_FOR_MODEL, MAX_FOR_TOOL, SIZE
from tests.cases import each_case
from tests.unit.engine.story import Story
from tests.unit.engine.test_screening import POISON, asking, calling
from tests.unit.engine.test_think import Mind, call, final
from tests.world import Item, Outside, Toolbox

LONG = "x" * (MAX_FOR_TOOL + 1)
HIDDEN = {
    "a\u202eb": "a[U+202E]b",
    "a\u200bb": "a[U+200B]b",
    "a\u2066b": "a[U+2066]b",
    "a\x1bb": "a[U+001B]b",
    "a\U000e0041\U000e0042": "a[U+E0041][U+E0042]",
    "x\ufe01\ufe02\ufe03": "x[U+FE01][U+FE02][U+FE03]",
    "\ufeffa": "[U+FEFF]a",
    "a\u200d\u200cb": "a[U+200D][U+200C]b",
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(c)) for c in "ignorethat") + "\U000e007f": "\U0001f3f4"
    + "".join(f"[U+E00{ord(c):02X}]" for c in "ignorethat")
    + "[U+E007F]",
}
SEEN = [
    "a\tb\r\nc",
    "क्\u200dष",
    "می\u200cخواهم",
    "👩\u200d🚀",
    "❤\ufe0f",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "שלום",
    "ü",
    "名",
]


def test_hidden_characters_are_marked_and_what_is_written_with_joiners_is_not() -> None:
    def marked(text: str) -> Any:
        verdict = HIDDEN_CHARACTERS.function(Piece({text: [text]}, "tool", "", "model", "", "", ""))
        return text if verdict is None else verdict.content

    assert {text: marked(text) for text in HIDDEN} == {text: {m: [m]} for text, m in HIDDEN.items()}
    assert [marked(text) for text in SEEN] == SEEN


async def test_hidden_characters_are_marked_for_every_model_and_the_record_keeps_the_original(tools: Toolbox) -> None:
    mind = Mind([call("look", name="a\u202eb")], [final()])
    story = Story(asking(tools, mind, prompt="Do\u200b it."))
    assert await story.settle() == "completed"
    assert mind.shown[0][0].parts[0].content == "Do[U+200B] it."
    assert mind.shown[1][0].parts[0].content == "Do[U+200B] it."
    assert mind.shown[1][2].parts[0].content["ref"] == "look:a[U+202E]b"
    assert [x.verdict for x in story.events(e.ContentWithheld)] == ["replaced", "replaced"], "each is told once"
    assert story.events(e.ToolRead)[0].payload["result"]["ref"] == "look:a\u202eb"


async def test_a_prompt_that_is_too_large_is_refused(tools: Toolbox) -> None:
    story = Story(asking(tools, Mind([final()]), prompt="x" * (MAX_FOR_MODEL + 1)))
    assert await story.settle() == "completed"
    assert story.output[2:] == ["size@1", f"{MAX_FOR_MODEL + 1} characters are more than {MAX_FOR_MODEL}"]


@each_case(
    "arguments",
    [{"a": LONG}, {"a": [LONG]}, {"a": {"b": {"c": LONG}}}, {LONG: 1}, {"a": 1, "b": ["x" * 100_000] * 41}, [LONG]],
)
def test_nothing_too_large_passes_to_a_tool_wherever_it_hides(arguments: Any) -> None:
    assert not has_at_most(arguments, MAX_FOR_TOOL)
    piece = Piece(arguments, "node", "", "tool", "", "", "")
    assert SIZE.function(piece) is not None
    for small in ({"a": "x" * 5000}, {"a": ["x"] * 5000}, {str(i): i for i in range(100)}, {"a": None, "b": 1.5}, []):
        assert has_at_most(small, MAX_FOR_TOOL)


async def test_arguments_that_are_too_large_reach_no_tool(tools: Toolbox, outside: Outside) -> None:
    story = Story(calling(tools, "order", Item(name=LONG)))
    assert await story.settle() == "completed"
    assert story.output[:4] == ["refused", "node node", "tool order", "size@1"]
    assert outside.requests == [] and [x.verdict for x in story.events(e.ContentWithheld)] == ["refused"]


async def test_the_shipped_list_finds_what_speaks_to_the_model(tools: Toolbox) -> None:
    mind = Mind([call("look", name=POISON)], [final()])
    agent = asking(tools, mind)
    agent.screens.append(prompt_injection_markers)
    story = Story(agent)
    assert await story.settle() == "completed"
    assert mind.shown[1][2].parts[0].content["withheld_by"] == "prompt_injection_markers@1"
    before = time.process_time()
    for text in ("ignore " * 50_000, "ignore" + " " * 200_000, "ignore " + "a" * 200_000, "you are now " * 20_000):
        prompt_injection_markers.function(Piece(text, "tool", "", "model", "", "", ""))
    assert time.process_time() - before < 3, "a hostile text doesn't keep it busy"
