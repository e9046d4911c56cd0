"""Layout of an agent's graph for an SVG (Sugiyama's method without the reduction of crossings).
Pure: no Django, no I/O. Layers are by longest path from the start. Edges that skip layers swing out to the right, so
that they cross no box."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

WIDTH, HEIGHT, GAP, LAYER = 164, 34, 20, 62
MARGIN, SWING = 6, 18
# The path of a loop may have thousands of steps. The description for screen readers is limited to this length.
STEPS_TOLD = 30


@dataclass(frozen=True, slots=True)
class Box:
    """A node. `status` is idle, done, now or bad; `count` is the number of visits by the run."""

    name: str
    title: str
    x: int
    y: int
    status: str = "idle"
    count: int = 0

    @property
    def text_y(self) -> int:
        return self.y + HEIGHT // 2 + 4

    @property
    def text_x(self) -> int:
        return self.x + 14

    @property
    def visits_x(self) -> int:
        return self.x + WIDTH - 10


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge as an SVG path, with the three points of its arrow head."""

    start: str
    end: str
    d: str
    head: str
    is_taken: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """The whole drawing in its own units. `walk` describes the path for screen readers."""

    width: int
    height: int
    boxes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    walk: str = ""


def draw(
    nodes: Mapping[str, Sequence[str]],
    start: str,
    titles: Mapping[str, str],
    *,
    path: Sequence[str] = (),
    now: str = "",
    now_status: str = "now",
) -> Drawing:
    """Return a drawing of the graph `nodes` (name → successors) with a run's `path` of visited nodes.
    `now` is the current node."""
    layers = _layers(nodes, start)
    depth = {name: level for level, names in enumerate(layers) for name in names}
    widest = max((len(names) for names in layers), default=1)
    span = widest * WIDTH + (widest - 1) * GAP
    boxes: dict[str, Box] = {}
    counts = Counter(path)
    for level, names in enumerate(layers):
        left = MARGIN + (span - len(names) * WIDTH - (len(names) - 1) * GAP) // 2
        for n, name in enumerate(names):
            status = now_status if name == now else "done" if name in counts else "idle"
            at = (left + n * (WIDTH + GAP), MARGIN + level * LAYER)
            boxes[name] = Box(name, titles.get(name, name), *at, status, counts[name])
    taken = set(pairwise(path))
    edges, swings = [], 0
    for name in boxes:
        for target in nodes[name]:
            is_straight = depth[target] == depth[name] + 1
            swings += not is_straight
            line = (
                _straight(boxes[name], boxes[target])
                if is_straight
                else _swing(boxes[name], boxes[target], span, swings)
            )
            edges.append(Edge(name, target, *line, (name, target) in taken))
    edges.sort(key=lambda edge: edge.is_taken)
    width = 2 * MARGIN + span + (SWING * (swings + 1) if swings else 0)
    latest = " → ".join(titles.get(name, name) for name in path[-STEPS_TOLD:])
    walk = f"{len(path) - STEPS_TOLD} earlier steps → {latest}" if len(path) > STEPS_TOLD else latest
    return Drawing(width, 2 * MARGIN + (len(layers) - 1) * LAYER + HEIGHT, list(boxes.values()), edges, walk)


def _layers(nodes: Mapping[str, Sequence[str]], start: str) -> list[list[str]]:
    """Return nodes by longest distance from the start without back edges. Unreachable nodes come last."""
    back = _back_edges(nodes, start)
    depth: dict[str, int] = {start: 0} if start in nodes else {}
    for _ in nodes:  # without cycles, one round of relaxation per node is enough
        moved = False
        for name, targets in nodes.items():
            for target in targets:
                if name in depth and (name, target) not in back and depth.get(target, -1) < depth[name] + 1:
                    depth[target] = depth[name] + 1
                    moved = True
        if not moved:
            break
    lost = [name for name in nodes if name not in depth]
    last = max(depth.values(), default=-1) + 1
    depth.update(dict.fromkeys(lost, last))
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for name in nodes:
        layers[depth[name]].append(name)
    return [layer for layer in layers if layer]


def _back_edges(nodes: Mapping[str, Sequence[str]], start: str) -> set[tuple[str, str]]:
    """Return edges to nodes that are still being explored, which close cycles.
    Iterative depth-first search."""
    back: set[tuple[str, str]] = set()
    state: dict[str, str] = {}
    for root in [start, *nodes]:
        if root in state or root not in nodes:
            continue
        state[root] = "open"
        stack = [(root, iter(nodes[root]))]
        while stack:
            name, targets = stack[-1]
            target = next(targets, None)
            if target is None:
                state[name] = "done"
                stack.pop()
            elif state.get(target) == "open":
                back.add((name, target))
            elif target not in state:
                state[target] = "open"
                stack.append((target, iter(nodes[target])))
    return back


def _straight(start: Box, end: Box) -> tuple[str, str]:
    x1, y1 = start.x + WIDTH // 2, start.y + HEIGHT
    x2, y2 = end.x + WIDTH // 2, end.y
    middle = (y1 + y2) // 2
    line = f"M{x1} {y1}V{y2 - 5}" if x1 == x2 else f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2 - 5}"
    return line, f"{x2 - 4},{y2 - 6} {x2 + 4},{y2 - 6} {x2},{y2}"


def _swing(start: Box, end: Box, span: int, n: int) -> tuple[str, str]:
    x1, y1 = start.x + WIDTH, start.y + HEIGHT // 2 + 5
    x2, y2 = end.x + WIDTH, end.y + HEIGHT // 2 - 5
    out = MARGIN + span + n * SWING
    line = f"M{x1} {y1}C{out} {y1} {out} {y1} {out} {(y1 + y2) // 2}S{out} {y2} {x2 + 6} {y2}"
    return line, f"{x2 + 6},{y2 - 4} {x2 + 6},{y2 + 4} {x2},{y2}"
