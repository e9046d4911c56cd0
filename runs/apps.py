import traceback
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

_OURS = ("/runs/engine/", "/site-packages/", "<frozen ", "<string>", "/importlib/", "/runs/apps.py")


class RunsConfig(AppConfig):
    name = "runs"
    label = "runs"

    def ready(self) -> None:
        """Load this process's agents and validate each graph before any run can start.
        Raises ImproperlyConfigured, with a one-line text, for a module that is missing, unloadable or without agents,
        and for an invalid agent."""
        from ledger.web.seeing import viewers
        from runs import features, seen
        from runs import protected as protected  # connects signal handlers
        from runs.engine.agents import registry
        from runs.engine.errors import DefinitionError
        from runs.own_features import FEATURES

        features.install(*FEATURES)
        viewers.tell_who_sees(seen.sees)
        viewers.tell_who_reads(seen.reads)
        viewers.tell_what_is_erased(seen.is_erased)
        for name in settings.DURABLEAGENTS_AGENTS:
            module = _loaded(name)
            if not any(_agents_of(module)):
                raise ImproperlyConfigured(
                    f"DURABLEAGENTS_AGENTS: {name} ({module.__file__}) defines no agent: "
                    "define one with Agent(name, version, …), or name the module that does"
                )
        for agent in registry.agents():
            try:
                agent.validate()
                # Compute fingerprints now, from the loaded source, because a deployment may change the files later.
                agent.fingerprint()
                agent.older_fingerprints()
            except DefinitionError as error:
                raise ImproperlyConfigured(f"DURABLEAGENTS_AGENTS: {error.detail}") from error
            except Exception as error:
                raise ImproperlyConfigured(f"DURABLEAGENTS_AGENTS: {agent.graph_id}: {_error_line(error)}") from error


def _loaded(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            raise ImproperlyConfigured(
                f"DURABLEAGENTS_AGENTS: there is no module {name!r} on the Python path"
            ) from None
        raise _unloadable(name, error) from error
    except SyntaxError as error:
        raise ImproperlyConfigured(f"DURABLEAGENTS_AGENTS: {name}: {_spot(name, error)}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise _unloadable(name, error) from error


def _spot(name: str, error: SyntaxError) -> str:
    """Return the file and line of a syntax error. For a file with NUL bytes the compiler names neither."""
    if error.filename is not None and error.lineno is not None:
        return f"{error.filename}, line {error.lineno}"
    try:
        spec = find_spec(name)
    except (ImportError, SyntaxError, ValueError):  # the parent package itself has errors
        spec = None
    return error.filename or (spec.origin if spec is not None else None) or "its source"


def _unloadable(name: str, error: BaseException) -> ImproperlyConfigured:
    """Return the error to raise, with the innermost line of the author's code."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not any(part in frame.filename for part in _OURS)] or list(frames)
    return ImproperlyConfigured(
        f"DURABLEAGENTS_AGENTS: {name}: {theirs[-1].filename}, line {theirs[-1].lineno}: {_error_line(error)}"
    )


def _error_line(error: BaseException) -> str:
    text = " ".join(str(getattr(error, "detail", error)).split())
    return text[:400] if type(error).__name__ == "DefinitionError" else f"{type(error).__name__}: {text[:300]}"


def _agents_of(module: ModuleType) -> Iterator[bool]:
    from runs.engine.agents import Agent, registry

    yield from (isinstance(value, Agent) for value in vars(module).values())
    for agent in registry.agents():
        places = {node.function.__module__ for node in agent.nodes.values()}
        yield any(place == module.__name__ or place.startswith(f"{module.__name__}.") for place in places)
