"""Agents (named, versioned graphs of nodes over a typed state) and the registry of all agents."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from runs.engine.assistants import Assistant
from runs.engine.attributes import Attribute, misdeclared
from runs.engine.budget import Budget
from runs.engine.content.hooks import Screen, check_screens
from runs.engine.definition_checks import parameters_problem, sample_problem, state_problem, undeclared_call
from runs.engine.errors import DefinitionError, UnknownAgent, UnknownVersion
from runs.engine.fingerprint import digest, first_scheme, is_current, parts, second_scheme
from runs.engine.messages import Message, View, message_of, view_of
from runs.engine.migration import Migration, check_migrations, upgrades_of
from runs.engine.tools import ReplayClass, Tool, Undo, must_be_stable
from runs.engine.undo import check_undos, undos_of

_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
_VERSION = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})")
_NODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
SIGNAL_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class End:
    """Returned by a node to end the run.

    `output` is an `Agent.output`, or plain data if no output model is declared.
    """

    output: Any = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample input offered on the agent's page: `label` names the choice, `input` is the document."""

    label: str
    input: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """One step of the graph: its function and the edges it may take. A node without edges ends the run."""

    name: str
    edges: tuple[str, ...]
    function: Callable[..., Any]
    title: str
    doc: str


@dataclass
class Agent:
    """A graph of nodes over a typed state. Declare nodes with `@agent.node`; `validate` checks the whole graph.

    `name` (lower-case-with-hyphens, at most 64 letters) and `version` (`"1.0.0"`) identify it permanently: a changed
    agent needs a new version, and existing runs stay on their version. `input`, `state` and `output` are Pydantic
    models: the input of a run, the state that its nodes pass on (plain data, checkpointed after each node), and the
    output (None: any plain data). `initial` builds the first state from the input; by default the state is built from
    the input's fields. `title` and `description` are shown to people; the title defaults to the name. `samples` are
    inputs for trying the agent out. `tools` and `assistants` list everything that its nodes may use: a call of any
    other tool is refused. `budget` limits a run whose start sets no budget (None: no limit). `attributes` maps the
    names of the attributes by which its runs can be searched and sorted to their types: `{"customer": Keyword(), "due":
    Date()}`.

    `signals` are the names of the signals its nodes wait for; others are refused (None: all are accepted, for names
    made at run time). `screens` are hooks that check content before it reaches a model, a tool or a node, in addition
    to the installation's; they are not part of the version, so they can become stricter for runs in progress. `undos`
    lists the undos that calls may select with `undo=`, in addition to the tools' own; `on_failure` tells what happens
    to effects that can be undone when a run fails: "undo" or "leave". `migrations` tell how runs of earlier versions
    continue on this one when they are migrated. `upgraders` upgrade older states step by step: `{1: f, 2: g}` means
    that this version's states have schema number 3 and that `f` turns a state with number 1 into one with number 2,
    both as plain data; without upgraders the number is 1.

    Raises DefinitionError for a wrong name, version, model or attribute, and for a second agent with the same name and
    version.
    """

    name: str
    version: str
    input: type[BaseModel]
    state: type[BaseModel]
    output: type[BaseModel] | None = None
    initial: Callable[[Any], BaseModel] | None = None
    title: str = ""
    description: str = ""
    samples: list[Sample] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    assistants: list[Assistant] = field(default_factory=list)
    budget: Budget | None = None
    attributes: dict[str, Attribute] = field(default_factory=dict)
    signals: list[str] | None = None
    screens: list[Screen] = field(default_factory=list)
    undos: list[Undo] = field(default_factory=list)
    on_failure: str = "undo"
    migrations: list[Migration] = field(default_factory=list)
    upgraders: dict[int, Callable[[Any], Any]] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict, init=False)
    messages: dict[str, Message] = field(default_factory=dict, init=False)
    views: dict[str, View] = field(default_factory=dict, init=False)
    start: str = field(default="", init=False)
    _fingerprint: str = field(default="", init=False, repr=False)
    _older: tuple[str, ...] = field(default=(), init=False, repr=False)
    _parts: dict[str, Any] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise DefinitionError(
                f"agent name {self.name!r} is invalid: use at most 64 lower-case letters, digits and hyphens"
            )
        if not isinstance(self.version, str) or not _VERSION.fullmatch(self.version):
            raise DefinitionError(
                f'agent {self.name!r}: version {self.version!r} is not of the form 1.0.0: give a text, such as "1.0.0"'
            )
        must_be_stable(f"agent {self.graph_id}, input", self.input)
        must_be_stable(f"agent {self.graph_id}, state", self.state)
        if self.output is not None:
            must_be_stable(f"agent {self.graph_id}, output", self.output)
        if problem := misdeclared(self.attributes):
            raise DefinitionError(f"{self.graph_id}: {problem}")
        check_screens(self.graph_id, self.screens)
        self.title = self.title or self.name
        self._check_signals()
        registry.add(self)

    def _check_signals(self) -> None:
        if isinstance(self.signals, str):
            raise DefinitionError(f"{self.graph_id}: signals={self.signals!r} is a single text: give a list")
        for name in self.signals or ():
            if not isinstance(name, str) or not SIGNAL_NAME.fullmatch(name):
                raise DefinitionError(
                    f"{self.graph_id}: signal name {name!r} is invalid: it must match {SIGNAL_NAME.pattern}"
                )

    @property
    def graph_id(self) -> str:
        """Return name and version, which identify the code of a run."""
        return f"{self.name}@{self.version}"

    def node(
        self, *, to: Iterable[str] = (), start: bool = False, title: str = ""
    ) -> Callable[[Callable[..., Any]], Node]:
        """Declare a node: an `async def` of (state, context) that returns the next node's name, or `End(output)`.

        `to` names the nodes it may go to (none: it ends the run), `start` marks the first node, `title` is its label in
        the graph (default: the function's name). Raises DefinitionError for a second node with the same name, a second
        start, and a function that isn't async or has other parameters.
        """

        def declare(function: Callable[..., Any]) -> Node:
            name = function.__name__
            if isinstance(to, str):
                raise DefinitionError(
                    f"{self.graph_id}: node {name!r}: to={to!r} is a single text: give a list, to=[{to!r}]"
                )
            if not _NODE.fullmatch(name):
                raise DefinitionError(f"{self.graph_id}: node name {name!r} is invalid: use lower_snake_case")
            if name in self.nodes:
                raise DefinitionError(f"{self.graph_id}: there are two nodes named {name!r}: rename one")
            if not inspect.iscoroutinefunction(function):
                raise DefinitionError(f"{self.graph_id}: node {name!r} must be an `async def`")
            if problem := parameters_problem(function, self.state):
                raise DefinitionError(f"{self.graph_id}: node {name!r}: {problem}")
            if start and self.start:
                raise DefinitionError(
                    f"{self.graph_id}: both {self.start!r} and {name!r} are marked as start: mark one"
                )
            self._fingerprint, self._older = "", ()
            self.nodes[name] = node = Node(
                name, tuple(to), function, title or name.replace("_", " "), inspect.cleandoc(function.__doc__ or "")
            )
            if start:
                self.start = name
            return node

        return declare

    def message(
        self,
        name: str = "",
        *,
        takes: type[BaseModel],
        answers: type[BaseModel] | None = None,
        check: Callable[[Any, Any], None] | None = None,
        title: str = "",
    ) -> Callable[[Callable[[Any, Any], Any]], Message]:
        """Declare a message that a run accepts at any time: a `def` of (state, request) that may change the state.

        It returns the answer, or raises Refused. `name` defaults to the function's, `title` is shown to people. `takes`
        and `answers` are the Pydantic models of request and answer (without `answers`, the message is only
        acknowledged). `check`, a function of (state, request), is called with the recorded state before the request is
        accepted; if it raises, the request is refused. Raises DefinitionError.
        """

        def declare(function: Callable[[Any, Any], Any]) -> Message:
            made = message_of(
                self.graph_id, self.state, function, name=name, takes=takes, answers=answers, check=check, title=title
            )
            if made.name in self.messages:
                raise DefinitionError(f"{self.graph_id}: there are two messages named {made.name!r}: rename one")
            self._fingerprint, self._older = "", ()
            self.messages[made.name] = made
            return made

        return declare

    def view(
        self, name: str = "", *, answers: type[BaseModel], title: str = ""
    ) -> Callable[[Callable[[Any], Any]], View]:
        """Declare a view of the recorded state: a plain `def` of (state) that returns an instance of `answers`.

        `answers` is a Pydantic model, `name` defaults to the function's, `title` is shown to people. Views are not part
        of the fingerprint, since no run depends on them. Raises DefinitionError.
        """

        def declare(function: Callable[[Any], Any]) -> View:
            made = view_of(self.graph_id, function, name=name, answers=answers, title=title)
            if made.name in self.views:
                raise DefinitionError(f"{self.graph_id}: there are two views named {made.name!r}: rename one")
            self.views[made.name] = made
            return made

        return declare

    def begin(self, input: Any) -> BaseModel:
        """Return the first state for a validated `input`."""
        return self.initial(input) if self.initial else self.state.model_validate(input.model_dump())

    def tool(self, name: str) -> Tool | None:
        """Return the tool called `name`, declared on the agent or on one of its assistants; None if there is none."""
        every = (self.tools, *(assistant.tools for assistant in self.assistants))
        return next((tool for tools in every for tool in tools if tool.name == name), None)

    @cached_property
    def tools_by_name(self) -> dict[str, Tool]:
        """Return the tools by name, as of the first access to this property. `tool` also finds tools added later."""
        every = [*self.tools, *(tool for assistant in self.assistants for tool in assistant.tools)]
        return {tool.name: tool for tool in reversed(every)}

    def all_tools(self) -> list[Tool]:
        """Return every tool the agent can reach, each once."""
        every = [*self.tools, *(t for a in self.assistants for t in a.tools)]
        return list({t.name: t for t in every}.values())

    def all_undos(self) -> dict[str, Undo]:
        """Return all undos, by the names under which journals record them."""
        return undos_of(self.all_tools(), self.undos)

    def validate(self) -> None:
        """Check the whole graph. Raises DefinitionError with the problem and its fix."""
        if not self.start:
            raise DefinitionError(f"{self.graph_id}: no node is marked as start: mark one with start=True")
        for node in self.nodes.values():
            for target in node.edges:
                if target not in self.nodes:
                    raise DefinitionError(
                        f"{self.graph_id}: node {node.name!r} leads to {target!r}, which does not exist: correct to=[…]"
                    )
        known: dict[str, Tool] = {}
        for t in [*self.tools, *(t for a in self.assistants for t in a.tools)]:
            if not isinstance(t, Tool) or not isinstance(t.replay_class, ReplayClass):
                raise DefinitionError(f"{self.graph_id}: {t!r} is not a tool: register it with @tool(replay_class=…)")
            if known.setdefault(t.name, t) is not t:
                raise DefinitionError(f"{self.graph_id}: there are two tools named {t.name!r}: rename one")
        check_undos(self.graph_id, known, self.undos, self.on_failure)
        check_migrations(self.graph_id, self.version, self.nodes, self.migrations)
        upgrades_of(self.graph_id, self.upgraders)
        self._check_state_and_samples()
        for node in self.nodes.values():
            if problem := undeclared_call(node.function, lambda called: self.tool(called.name) is called):
                raise DefinitionError(f"{self.graph_id}: node {node.name!r}: {problem}, or in an assistant's")

    def _check_state_and_samples(self) -> None:
        if self.initial is None and (problem := state_problem(self.input, self.state)):
            raise DefinitionError(f"{self.graph_id}: {problem}")
        for sample in self.samples:
            if problem := sample_problem(sample.input, self.input, None if self.initial else self.begin):
                raise DefinitionError(f"{self.graph_id}: sample {sample.label!r}: {problem}")

    def migration_of(self, version: str) -> Migration:
        """Return the migration from an earlier `version`, or a default one if none is declared."""
        return next((each for each in self.migrations if each.of == version), Migration(version))

    @property
    def schema_version(self) -> int:
        """Return the schema number of the states that this version writes."""
        return upgrades_of(self.graph_id, self.upgraders).now

    def upgraded(self, number: int, state: Any) -> Any:
        """Upgrade a `state` of schema `number` to this version and return it as plain data.

        Raises UnknownFormat for a number that this version can't read, such as a later one, and whatever an upgrader
        raises.
        """
        return upgrades_of(self.graph_id, self.upgraders).upgraded(number, state)

    def parts(self) -> dict[str, Any]:
        """Return everything that defines this version: nodes, tools and gates with their code, models, assistants."""
        self.fingerprint()
        return parts(self) if self._parts is None else self._parts

    def fingerprint(self) -> str:
        """Return the digest of `parts`.

        Parts and digest are computed once, because a deployment may replace the source files.
        """
        if not self._fingerprint:
            self._parts = parts(self)
            self._fingerprint = digest(self._parts)
        return self._fingerprint

    def older_fingerprints(self) -> tuple[str, ...]:
        """Return this code's fingerprints by earlier schemes, latest first.

        The first scheme can't represent upgraders.
        """
        if not self._older:
            self._older = (second_scheme(self), *(() if self.upgraders else (first_scheme(self),)))
        return self._older

    def is_own(self, fingerprint: str) -> bool:
        """Return whether a `fingerprint` is this code's, by any scheme."""
        if fingerprint == self.fingerprint():
            return True
        return not is_current(fingerprint) and fingerprint in self.older_fingerprints()


class Registry:
    """All agents of this process, by name and version."""

    def __init__(self) -> None:
        self._agents: dict[str, dict[str, Agent]] = {}
        self._quarantined: set[str] = set()
        self._closed: frozenset[str] = frozenset()
        self._kept: Mapping[str, str] = {}

    def add(self, agent: Agent) -> None:
        """Add an agent.

        Raises DefinitionError for a second agent with the same id, because it would drive the runs of the first.
        """
        versions = self._agents.setdefault(agent.name, {})
        if versions.get(agent.version, agent) is not agent:
            raise DefinitionError(f"there are two agents {agent.graph_id}: give one of them another name or version")
        versions[agent.version] = agent

    def remove(self, graph_id: str) -> None:
        """Remove a version. Tests use this for the agents that they define."""
        name, _, version = graph_id.partition("@")
        self._quarantined.discard(graph_id)
        self._agents.get(name, {}).pop(version, None)
        if not self._agents.get(name):
            self._agents.pop(name, None)

    def agents(self) -> list[Agent]:
        """Return all agents by name, newest version first."""
        return [a for name in sorted(self._agents) for a in self._newest_first(name)]

    def versions(self, name: str) -> list[Agent]:
        """Return an agent's versions, newest first."""
        return self._newest_first(name) if name in self._agents else []

    def quarantine(self, graph_id: str) -> None:
        """Mark a version whose code here differs from the recorded one: its runs can be shown, but not driven."""
        self._quarantined.add(graph_id)

    def graph_ids(self) -> list[str]:
        """Return the versions that this process can drive."""
        return [a.graph_id for a in self.agents() if a.graph_id not in self._quarantined]

    def find(self, reference: str) -> Agent:
        """Return the agent for `name` (its newest version) or `name@version`. Raises UnknownAgent, UnknownVersion."""
        name, at, version = reference.partition("@")
        if name not in self._agents:
            raise UnknownAgent(reference, sorted(self._agents))
        if not at:
            return self._newest_first(name)[0]
        if version not in self._agents[name]:
            raise UnknownVersion(name, version, [a.version for a in self._newest_first(name)])
        return self._agents[name][version]

    def steer(self, *, closed: Iterable[str], kept: Mapping[str, str]) -> None:
        """Set the `closed` versions, which `find_for_step` avoids, and each agent's `kept` one, which it prefers."""
        self._closed, self._kept = frozenset(closed), dict(kept)

    def find_for_step(self, reference: str) -> Agent:
        """Return the agent for a child run or handoff. Raises the same errors as `find`.

        A bare name selects the version kept during a rollout, else the newest open version, else the newest.
        """
        if "@" in reference or reference not in self._agents:
            return self.find(reference)
        versions = self._newest_first(reference)
        if (kept := self._agents[reference].get(self._kept.get(reference, ""))) is not None:
            return kept
        return next((agent for agent in versions if agent.graph_id not in self._closed), versions[0])

    def _newest_first(self, name: str) -> list[Agent]:
        return sorted(self._agents[name].values(), key=lambda a: tuple(map(int, a.version.split("."))), reverse=True)


registry = Registry()
