"""An agent's graph is drawn from its declaration: layers downwards, nothing overlapping."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from runs.console.graph_svg import HEIGHT, WIDTH, draw

NAMES = list("abcdefgh")


def test_a_line_of_nodes_is_drawn_downwards() -> None:
    found = draw({"a": ["b"], "b": ["c"], "c": []}, "a", {}, path=["a", "b"], now="b")
    assert [(box.name, box.status) for box in found.boxes] == [("a", "done"), ("b", "now"), ("c", "idle")]
    assert found.boxes[0].y < found.boxes[1].y < found.boxes[2].y
    assert {(edge.start, edge.end): edge.is_taken for edge in found.edges} == {("a", "b"): True, ("b", "c"): False}


def test_branches_stand_side_by_side() -> None:
    found = {box.name: box for box in draw({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, "a", {}).boxes}
    assert found["b"].y == found["c"].y and found["b"].x + WIDTH < found["c"].x and found["d"].y > found["b"].y


def test_a_loop_swings_out_and_repeats_are_counted() -> None:
    found = draw({"a": ["b"], "b": ["a", "b", "c"], "c": []}, "a", {}, path=["a", "b", "b", "a", "b"], now="b")
    assert {box.name: box.count for box in found.boxes} == {"a": 2, "b": 3, "c": 0}
    assert all("C" in edge.d for edge in found.edges if (edge.start, edge.end) in {("b", "a"), ("b", "b")})


def test_the_walk_is_told_in_words() -> None:
    assert draw({"a": ["b"], "b": []}, "a", {"a": "Start", "b": "End"}, path=["a", "b"]).walk == "Start → End"


def test_of_a_long_walk_the_end_is_told() -> None:
    walk = draw({"a": ["b"], "b": ["a"]}, "a", {}, path=["a", "b"] * 500).walk
    assert walk.startswith("970 earlier steps → a → b → ") and walk.endswith("a → b") and len(walk) < 200


@given(st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=4, unique=True), min_size=1))
def test_any_graph_is_drawn_whole_and_no_box_covers_another(given_nodes: dict[str, list[str]]) -> None:
    nodes = {name: [target for target in targets if target in given_nodes] for name, targets in given_nodes.items()}
    found = draw(nodes, next(iter(nodes)), {})
    assert {box.name for box in found.boxes} == set(nodes)
    assert len(found.edges) == sum(map(len, nodes.values()))
    for one, other in combinations(found.boxes, 2):
        assert abs(one.x - other.x) >= WIDTH or abs(one.y - other.y) >= HEIGHT
    assert all(0 <= box.x <= found.width - WIDTH and 0 <= box.y <= found.height - HEIGHT for box in found.boxes)
