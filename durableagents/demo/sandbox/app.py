"""The web application: the operations' paths, the oracle, the faults and the pages."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from . import effects, mail
from .callbacks import Courier
from .faults import FaultBook
from .operations import EFFECTS, READS, REQUEST_W9, Effect
from .pipeline import Pipeline
from .store import Store, StoreUnavailable
from .web.fields import Fields, Name, read_object
from .web.fields import Scope as Short
from .web.pages import Pages
from .web.wire import Cut, Problem, bounded_body, json_answer, problem_answer, store_unavailable

Endpoint = Callable[[Request], Awaitable[Response]]
_READING = ("GET", "HEAD", "OPTIONS")


def build(store: Store, faults: FaultBook, courier: Courier) -> Starlette:
    def on_effect(effect: Effect) -> None:
        if effect is REQUEST_W9:
            courier.wake()

    pipeline = Pipeline(store, faults, on_effect)
    return Starlette(
        routes=[
            *_operations(pipeline),
            *_oracle(store),
            *_mailbox(store),
            *_faults(faults, courier),
            *Pages(store, faults, courier).routes(),
            Route("/healthz", _healthz(store), methods=["GET"]),
        ],
        middleware=[Middleware(CutWhenCancelled), Middleware(SameOriginWrites)],
        exception_handlers={
            Problem: _on_problem,
            HTTPException: _on_http_exception,
            StoreUnavailable: _on_store_unavailable,
            sqlite3.Error: _on_store_unavailable,
            ClientDisconnect: _on_disconnect,
        },
    )


class CutWhenCancelled:
    """Cut requests that still run after the grace period of a shutdown, as a kill would.

    uvicorn would report each of them as a crash.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            await Cut()(scope, receive, send)


class SameOriginWrites:
    """Refuse writes from pages of other origins that are open in the same browser.

    Clients that aren't browsers send no Origin and are let through.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _READING:
            request = Request(scope)
            origin = request.headers.get("origin")
            if origin is not None and not _is_same(origin, request.headers.get("host", "")):
                await problem_answer(Problem(403, "a page of another origin may not write here"))(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_same(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def _operations(pipeline: Pipeline) -> list[BaseRoute]:
    routes: list[BaseRoute] = []
    for read in READS:
        routes.append(Route(read.path, partial(pipeline.read, read), methods=["GET"]))
    for effect in EFFECTS:
        routes.append(Route(effect.path, _keyed(pipeline, effect), methods=["GET", "POST"]))
    return routes


def _keyed(pipeline: Pipeline, effect: Effect) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await (pipeline.effect if request.method == "POST" else pipeline.find)(effect, request)

    return endpoint


def _oracle(store: Store) -> list[BaseRoute]:
    async def show(request: Request) -> Response:
        run_id = request.query_params.get("run_id")
        if run_id is not None and not effects.is_run_id(run_id):
            raise Problem(422, "must be 1 to 200 printable ASCII characters without spaces", field="run_id")
        body = await store.read(lambda connection: effects.as_json(connection, run_id))
        return Response(body, media_type="application/json")

    return [Route("/effects", show, methods=["GET"])]


def _mailbox(store: Store) -> list[BaseRoute]:
    async def search(request: Request) -> Response:
        query = Search.read(request.query_params)
        return json_answer(await store.read(lambda connection: mail.taken(connection, query.run_id, query.message_id)))

    return [Route("/api/mail/messages", search, methods=["GET"])]


class Search(Fields):
    """Search the mail server for a message."""

    run_id: Short
    message_id: Name


def _faults(faults: FaultBook, courier: Courier) -> list[BaseRoute]:
    async def endpoint(request: Request) -> Response:
        match request.method:
            case "POST":
                answer = json_answer((await faults.replace(read_object(await bounded_body(request)))).model_dump())
            case "DELETE":
                await faults.clear()
                answer = Response(status_code=204)
            case _:
                return json_answer([fault.model_dump() for fault in faults.entries()])
        courier.wake()
        return answer

    return [Route("/faults", endpoint, methods=["GET", "POST", "DELETE"])]


def _healthz(store: Store) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        await store.read(lambda connection: connection.execute("SELECT 1").fetchone())
        return json_answer({"status": "ok", "pid": os.getpid()})

    return endpoint


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_answer(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem_answer(Problem(error.status_code, error.detail, headers=dict(error.headers or {})))


async def _on_store_unavailable(request: Request, error: Exception) -> Response:
    return problem_answer(store_unavailable())


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # the client left while sending; nobody will read this
