"""A scripted model behind a real HTTP socket, for tests and for people.

It speaks Anthropic Messages, OpenAI Chat Completions and OpenAI Responses to the real SDKs, plays the
turns of a script in each of them, breaks where a turn says so, and in strict mode refuses what the
provider would refuse. It is no simulation of a model: it never looks at what a request means, beyond
the `when` of a turn. README.md in this folder describes scripts, faults and options.

    with ModelServer([turn("Hello.", call("LS", path="."))]) as server:
        ...  # point an SDK at server.url (Anthropic) or server.url + "/v1" (OpenAI)
    server.assert_finished()
"""

from __future__ import annotations

from tests.model_server.embeddings import Embeddings
from tests.model_server.prefix import request_prefix
from tests.model_server.script import call, load_script, turn
from tests.model_server.server import ModelServer, Request
from tests.model_server.wire import Dialect, sign

__all__ = [
    "Dialect",
    "Embeddings",
    "ModelServer",
    "Request",
    "call",
    "load_script",
    "request_prefix",
    "sign",
    "turn",
]
