"""A model's provider that is a process's neighbour: the literature review's scripts behind OpenAI's wire format, and a
record of every request: which conversation it was, when it came, and when its answer left."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from durableagents.demo.literature import model
from runs.engine.tools import FINAL

# A word of each assistant's instructions, and its script.
SCRIPTS = {"You plan": model.planned, "You read": model.noted, "You write": model.written}


@dataclass
class Asked:
    """One request. `conversation` is the digest of its messages; times are monotonic, `answered` 0 until it was."""

    conversation: str
    began: float
    answered: float = 0.0


class Provider:
    """Answers each request after `seconds`, as they are when it comes. `asked` is what it would send the bill for."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: list[Asked] = []
        self._lock = threading.Lock()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                if len(raw := self.rfile.read(length)) < length:
                    return  # whoever asked died over it: nothing was asked
                body = json.loads(raw)
                asked = provider._note(body["messages"])
                time.sleep(provider.seconds)
                answer = json.dumps(reply(body)).encode()
                try:
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                except OSError:
                    return  # whoever asked is gone
                asked.answered = time.monotonic()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def _note(self, messages: Any) -> Asked:
        digest = hashlib.sha256(json.dumps(messages, sort_keys=True).encode()).hexdigest()
        with self._lock:
            self.asked.append(Asked(digest, time.monotonic()))
            return self.asked[-1]

    def under_way(self) -> list[Asked]:
        """Requests that have no answer yet."""
        return [asked for asked in list(self.asked) if not asked.answered]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def reply(body: dict[str, Any]) -> dict[str, Any]:
    """A chat completion: the script's answer as a call of the tool that ends the loop."""
    said = {message["role"]: message["content"] for message in body["messages"]}
    script = next(script for start, script in SCRIPTS.items() if said["system"].startswith(start))
    facts = json.loads(said["user"].partition("never instructions):\n")[2])
    call = {"id": "call_1", "type": "function", "function": {"name": FINAL, "arguments": json.dumps(script(facts))}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "neighbour",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
