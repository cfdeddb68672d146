"""What OpenAI's Chat Completions, and the servers that speak it, refuse with status 400.

Arguments of an earlier call must be a JSON object: OpenAI takes any string, vLLM and llama.cpp do not.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

ROLES = ("system", "developer", "user", "assistant", "tool")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


def check_chat(
    body: Mapping[str, Any], alternation: bool, reasoning_field: str, reasoned: Mapping[str, str]
) -> str | None:
    """The first reason to refuse the request, or None. `reasoned` maps the id of a call to the reasoning
    that must be sent back in `reasoning_field` with it."""
    return next(_problems(body, alternation, reasoning_field, reasoned), None)


def _problems(
    body: Mapping[str, Any], alternation: bool, reasoning_field: str, reasoned: Mapping[str, str]
) -> Iterator[str]:
    if not body.get("model"):
        yield "you must provide a model parameter"
    yield from function_problems([tool.get("function") or {} for tool in body.get("tools") or []])
    if body.get("tools") == []:
        yield "Invalid 'tools': empty array. Expected an array with minimum length 1."
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "Invalid 'messages': empty array. Expected an array with minimum length 1."
        return
    for index, message in enumerate(messages):
        yield from _message(f"messages[{index}]", message)
    yield from _pairs(messages)
    if alternation:
        yield from _alternation(messages)
    for index, message in enumerate(messages):
        for made in message.get("tool_calls") or []:
            wanted = reasoned.get(made.get("id"))
            if wanted is not None and message.get(reasoning_field) != wanted:
                yield (
                    f"messages[{index}]: the `{reasoning_field}` in the thinking mode must be passed back to"
                    " the API."
                )


def function_problems(functions: list[Mapping[str, Any]]) -> Iterator[str]:
    """What is wrong with the definitions of functions, in OpenAI's words."""
    names: set[str] = set()
    for index, function in enumerate(functions):
        name = function.get("name", "")
        if not NAME.match(name):
            yield (
                f"Invalid 'tools[{index}].function.name': string does not match pattern."
                " Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            )
        if name in names:
            yield f"Duplicate function name '{name}'."
        names.add(name)
        parameters = function.get("parameters", {"type": "object"})
        kind = parameters.get("type") if isinstance(parameters, dict) else None
        if kind != "object":
            yield (
                f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"',"
                f" got 'type: \"{kind}\"'."
            )


def _message(where: str, message: Any) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        yield f"Invalid value: '{role}'. Supported values are: {', '.join(map(repr, ROLES))}."
    if content is None and not (role == "assistant" and message.get("tool_calls")):
        yield f"Invalid value for 'content' of {where}: expected a string, got null."
    if content == []:
        yield f"Invalid '{where}.content': empty array. Expected an array with minimum length 1."
    if role == "assistant" and message.get("tool_calls") == []:
        yield f"Invalid '{where}.tool_calls': empty array. Expected an array with minimum length 1."
    for place, part in enumerate(content if isinstance(content, list) else []):
        if part.get("type") == "text" and not part.get("text"):
            yield f"Invalid '{where}.content[{place}].text': expected a non-empty string."
    for place, made in enumerate(message.get("tool_calls") or []):
        yield from _call(f"{where}.tool_calls[{place}]", made)


def _call(where: str, made: Any) -> Iterator[str]:
    function = made.get("function") or {}
    if made.get("type") != "function":
        yield f"Missing required parameter: '{where}.type'."
    if not made.get("id"):
        yield f"Missing required parameter: '{where}.id'."
    elif len(made["id"]) > 40:
        yield f"Invalid '{where}.id': string too long. Expected a string with maximum length 40."
    if not NAME.match(function.get("name", "")):
        yield f"Invalid '{where}.function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'."
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        yield f"Invalid type for '{where}.function.arguments': expected a string."
        return
    try:
        decoded = json.loads(arguments)
    except ValueError as error:
        yield f"Invalid '{where}.function.arguments': {error}"
        return
    if not isinstance(decoded, dict):
        yield f"Invalid '{where}.function.arguments': not a JSON object"


def _pairs(messages: list[Any]) -> Iterator[str]:
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            answered = message.get("tool_call_id")
            if answered not in waiting:
                yield (
                    f"Invalid parameter: messages[{index}] with role 'tool' must be a response to a"
                    f" preceeding message with 'tool_calls'; its tool_call_id is '{answered}'."
                )
            else:
                waiting.remove(answered)
            continue
        if waiting:
            yield _unanswered(waiting)
        waiting = [str(made.get("id")) for made in message.get("tool_calls") or []]
        if len(set(waiting)) < len(waiting):
            yield f"Invalid 'messages[{index}].tool_calls': duplicate ids."
    if waiting:
        yield _unanswered(waiting)


def _unanswered(waiting: list[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
        f" 'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}"
    )


def _alternation(messages: list[Any]) -> Iterator[str]:
    roles = [str(message.get("role")) for message in messages]
    if any(role in ("system", "developer") for role in roles[1:]):
        yield "System message must be at the beginning."
    if ("user", "user") in itertools.pairwise(roles):
        yield "Conversation roles must alternate user/assistant/user/assistant/..."
