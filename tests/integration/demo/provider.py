"""A stand-in for OpenAI and Anthropic: refuses what they refuse, records requests, gives scripted answers."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from durableagents.demo.literature import model
from runs.engine.tools import FINAL

# The start of each assistant's instructions, and its script.
SCRIPTS = {"You plan": model.planned, "You read": model.noted, "You write": model.written}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MEDIA = re.compile(r"image/(png|jpeg|gif|webp)")


@dataclass
class Asked:
    """One request. `conversation` is the digest of its messages; times are monotonic; `answered` is 0 until then."""

    conversation: str
    began: float
    answered: float = 0.0


@dataclass(frozen=True)
class Call:
    """A tool call in an answer. `arguments` is sent unchanged: text for OpenAI, a value for Anthropic."""

    name: Any
    arguments: Any
    id: Any = "call_1"


@dataclass(frozen=True)
class Say:
    """An answer of the model. `ends` replaces a stream's finish reason, or else the second half of the body."""

    text: str | None = None
    calls: tuple[Call, ...] = ()
    ends: str | None = None


@dataclass(frozen=True)
class Raw:
    """A response sent unchanged, streamed or not. If `is_torn`, the connection breaks before its end."""

    body: str
    content_type: str = "application/json"
    status: int = 200
    is_torn: bool = False


class Provider:
    """Answers each request after `seconds`. `asked` lists billed requests, `requests` all, `refused` what was wrong."""

    def __init__(self, seconds: float = 0.0, script: Callable[[dict[str, Any]], Say | Raw] | None = None) -> None:
        self.seconds = seconds
        self.script = script or review
        self.asked: list[Asked] = []
        self.requests: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self._lock = threading.Lock()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm, wbufsize = True, -1

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                if len(raw := self.rfile.read(length)) < length:
                    return  # the client died: nothing was requested
                body = json.loads(raw)
                note = provider._note(body)
                time.sleep(provider.seconds)
                answer = provider._answer(self.path.partition("?")[0], body)
                data = answer.body.encode()
                try:
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.content_type)
                    self.send_header("Content-Length", str(len(data) + answer.is_torn))
                    self.end_headers()
                    self.wfile.write(data)
                    self.wfile.flush()
                    self.close_connection = answer.is_torn
                except OSError:
                    return  # the client is gone
                note.answered = time.monotonic()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.root = f"http://127.0.0.1:{self._server.server_port}"
        self.url = f"{self.root}/v1"

    def _note(self, body: dict[str, Any]) -> Asked:
        digest = hashlib.sha256(json.dumps(body["messages"], sort_keys=True).encode()).hexdigest()
        with self._lock:
            self.requests.append(body)
            self.asked.append(Asked(digest, time.monotonic()))
            return self.asked[-1]

    def _answer(self, path: str, body: dict[str, Any]) -> Raw:
        openai = path.endswith("/chat/completions")
        try:
            (check_openai if openai else check_anthropic)(body)
        except (ValueError, KeyError, TypeError, AssertionError) as problem:
            self.refused.append(f"{type(problem).__name__}: {problem}")
            error = {"type": "invalid_request_error", "message": str(problem), "code": None, "param": None}
            return Raw(json.dumps({"type": "error", "error": error}), status=400)
        script = self.script(body)
        if isinstance(script, Raw):
            return script
        return (openai_answer if openai else anthropic_answer)(script, is_streamed=bool(body.get("stream")))

    def under_way(self) -> list[Asked]:
        return [item for item in list(self.asked) if not item.answered]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def review(body: dict[str, Any]) -> Say:
    """Run the literature review's scripts: the answer is a call of the tool that ends the loop."""
    fields = {message["role"]: message["content"] for message in body["messages"]}
    script = next(script for start, script in SCRIPTS.items() if fields["system"].startswith(start))
    facts = json.loads(fields["user"].partition("never instructions):\n")[2])
    return Say(calls=(Call(FINAL, json.dumps(script(facts))),))


def tools_of(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] if "function" in tool else tool["name"] for tool in body.get("tools", [])]


def _check(is_right: bool, problem: str) -> None:
    if not is_right:
        raise ValueError(problem)


def _check_text(text: Any, where: str) -> None:
    _check(isinstance(text, str) and bool(text), f"{where}: a text that is not empty is required")
    text.encode()  # half a surrogate pair is not valid UTF-8


def _check_image(media_type: str, data: str) -> None:
    _check(bool(MEDIA.fullmatch(media_type)), f"unsupported image type {media_type}")
    base64.b64decode(data, validate=True)


def _check_tools(names: list[str], schemas: list[Any], choice: Any) -> None:
    _check(len(set(names)) == len(names), f"tool names must be unique: {names}")
    for name, schema in zip(names, schemas, strict=True):
        _check(bool(NAME.fullmatch(name)), f"tools: invalid name {name!r}")
        _check(isinstance(schema, dict) and schema.get("type") == "object", f"{name}: the schema must be an object")
    _check(choice is None or bool(names), "'tool_choice' is only allowed when 'tools' are specified")


def _check_calls(ids: list[Any], names: list[Any]) -> None:
    _check(all(isinstance(each, str) and NAME.fullmatch(each) for each in ids), f"invalid ids of tool calls {ids}")
    _check(len(set(ids)) == len(ids), f"ids of tool calls must be unique: {ids}")
    _check(all(isinstance(each, str) and NAME.fullmatch(each) for each in names), f"invalid names of tools {names}")


def check_openai(body: dict[str, Any]) -> None:
    """Raise ValueError for a chat completion's request that OpenAI refuses with 400."""
    tools = body.get("tools")
    _check(tools is None or bool(tools), "tools: an empty list")
    functions = [tool["function"] for tool in tools or []]
    _check_tools([f["name"] for f in functions], [f["parameters"] for f in functions], body.get("tool_choice"))
    open_calls: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            _check(message["tool_call_id"] in open_calls, f"no tool call {message['tool_call_id']!r} is open")
            open_calls.remove(message["tool_call_id"])
            content = message["content"]
            texts = [content] if isinstance(content, str) else [part["text"] for part in content]
            [text.encode() for text in texts]
            continue
        _check(not open_calls, f"tool calls without an answer: {open_calls}")
        if message["role"] == "assistant" and message.get("tool_calls") is not None:
            calls = message["tool_calls"]
            _check(bool(calls), "tool_calls: an empty list")
            open_calls = [call["id"] for call in calls]
            _check_calls(open_calls, [call["function"]["name"] for call in calls])
            for call in calls:
                _check(isinstance(json.loads(call["function"]["arguments"]), dict), "arguments: no object")
                call["function"]["arguments"].encode()
            if message.get("content") is not None:
                _check_text(message["content"], "assistant")
            continue
        _check(message["role"] in ("system", "developer", "user", "assistant"), f"role {message['role']!r}")
        _check_openai_content(message["content"], message["role"])
    _check(not open_calls, f"tool calls without an answer: {open_calls}")


def _check_openai_content(content: Any, role: str) -> None:
    if isinstance(content, str):
        return _check_text(content, role)
    _check(isinstance(content, list) and bool(content), f"{role}: content is required")
    for part in content:
        match part["type"]:
            case "text":
                _check_text(part["text"], role)
            case "image_url":
                url = part["image_url"]["url"]
                if not url.startswith("https://"):
                    _check_image(*url.removeprefix("data:").split(";base64,"))
            case "file":
                base64.b64decode(part["file"]["file_data"].partition(";base64,")[2], validate=True)
            case other:
                raise ValueError(f"{role}: unsupported part {other!r}")


def check_anthropic(body: dict[str, Any]) -> None:
    """Raise ValueError for a message's request that Anthropic refuses with 400."""
    _check(isinstance(body["max_tokens"], int) and body["max_tokens"] > 0, "max_tokens is required")
    tools = body.get("tools", [])
    _check_tools([t["name"] for t in tools], [t["input_schema"] for t in tools], body.get("tool_choice"))
    seen: list[str] = []
    open_calls: set[str] = set()
    for message in body["messages"]:
        blocks = message["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        _check(bool(blocks), f"{message['role']}: content must not be empty")
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        _check(set(results) == open_calls and len(results) == len(open_calls), f"results {results} of {open_calls}")
        calls = [block for block in blocks if block["type"] == "tool_use"]
        _check(not calls or message["role"] == "assistant", "tool_use: only of the assistant")
        seen += [block["id"] for block in calls]
        _check_calls(seen, [block["name"] for block in calls])
        open_calls = {block["id"] for block in calls}
        for block in blocks:
            _check_block(block)
    _check(not open_calls and body["messages"][-1]["role"] == "user", "the last message must be the user's")


def _check_block(block: dict[str, Any]) -> None:
    match block["type"]:
        case "text":
            _check_text(block["text"], "text")
        case "image":
            if block["source"]["type"] != "url":
                _check_image(block["source"]["media_type"], block["source"]["data"])
        case "document":
            _check(block["source"]["type"] in ("base64", "text"), "document: unsupported source")
        case "tool_use":
            _check(isinstance(block["input"], dict), "tool_use: input must be an object")
            json.dumps(block["input"], ensure_ascii=False).encode()
        case "tool_result":
            content = block.get("content", "")
            for part in [] if isinstance(content, str) else content:
                _check_block(part)
        case other:
            raise ValueError(f"unsupported block {other!r}")


def _events(*events: tuple[str, Any]) -> str:
    return "".join((f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n" for name, data in events)


def openai_answer(said: Say, *, is_streamed: bool) -> Raw:
    calls = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in said.calls
    ]
    finish = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    known = {"id": "chatcmpl-1", "created": 1, "model": "neighbour"}
    if not is_streamed:
        message = {"role": "assistant", "content": said.text, "tool_calls": calls or None}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return _whole({**known, "object": "chat.completion", "choices": [choice], "usage": usage}, said)

    def chunk(delta: dict[str, Any], finish: str | None = None) -> tuple[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return "", {**known, "object": "chat.completion.chunk", "choices": [choice]}

    chunks = [chunk({"role": "assistant", "content": ""})]
    if said.text is not None:
        chunks.append(chunk({"content": said.text}))
    chunks += [chunk({"tool_calls": [{"index": n, **call}]}) for n, call in enumerate(calls)]
    if said.ends is not None:
        return Raw(_events(*chunks) + said.ends, "text/event-stream")
    chunks += [chunk({}, finish), ("", {**known, "object": "chat.completion.chunk", "choices": [], "usage": usage})]
    return Raw(_events(*chunks) + "data: [DONE]\n\n", "text/event-stream")


def anthropic_answer(said: Say, *, is_streamed: bool) -> Raw:
    """Return a message, or its events. Text arguments are sent as the JSON that they are."""
    blocks: list[dict[str, Any]] = [] if said.text is None else [{"type": "text", "text": said.text}]
    blocks += [{"type": "tool_use", "id": c.id, "name": c.name, "input": _value(c.arguments)} for c in said.calls]
    usage = {"input_tokens": 100, "output_tokens": 10}
    stop = "tool_use" if said.calls else "end_turn"
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "neighbour", "stop_sequence": None}
    if not is_streamed:
        return _whole({**message, "content": blocks, "stop_reason": stop, "usage": usage}, said)
    events: list[tuple[str, Any]] = [
        ("message_start", {"message": {**message, "content": [], "stop_reason": None, "usage": usage}})
    ]
    for n, block in enumerate(blocks):
        if block["type"] == "text":
            begun, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            call = said.calls[n - (said.text is not None)]
            begun = {**block, "input": {}}
            text = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
            delta = {"type": "input_json_delta", "partial_json": text}
        events.append(("content_block_start", {"index": n, "content_block": begun}))
        events.append(("content_block_delta", {"index": n, "delta": delta}))
        events.append(("content_block_stop", {"index": n}))
    if said.ends is None:
        events.append(("message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}))
        events.append(("message_stop", {}))
    named = ((name, {"type": name, **data}) for name, data in events)
    return Raw(_events(*named) + (said.ends or ""), "text/event-stream")


def _value(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _whole(answer: dict[str, Any], said: Say) -> Raw:
    text = json.dumps(answer)
    return Raw(text if said.ends is None else text[: len(text) // 2] + said.ends)


def error_events(error: Any) -> Iterator[str]:
    """Yield an error in the middle of a stream, as OpenAI and as Anthropic send it."""
    yield _events(("", {"error": error}))
    yield _events(("error", {"type": "error", "error": error}))
