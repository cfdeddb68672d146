"""What OpenAI Responses refuses with status 400, in its words as far as they are known.

Conversations are sent whole: `previous_response_id` and references to stored items are refused, as with
an account that keeps nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.model_server.chat_rules import NAME, function_problems
from tests.model_server.wire import sign

_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
_PARTS = {"assistant": ("output_text", "refusal"), "user": ("input_text", "input_image", "input_file")}
_NOT_KEPT = "Item with id '{0}' not found. Items are not persisted when `store` is set to false."
_TAG = re.compile(r"(?:msg|fc)_([0-9a-f]+)r\d+\Z")


def check_responses(body: Mapping[str, Any], trusted: frozenset[str]) -> str | None:
    """The first reason to refuse the request, or None."""
    return next(_problems(body, trusted), None)


def _problems(body: Mapping[str, Any], trusted: frozenset[str]) -> Iterator[str]:
    if not body.get("model"):
        yield "Missing required parameter: 'model'."
    if body.get("previous_response_id"):
        yield f"Previous response with id '{body['previous_response_id']}' not found."
    tools = [tool for tool in body.get("tools") or [] if tool.get("type") == "function"]
    yield from function_problems(tools)
    given = body.get("input")
    if not given:
        yield "Missing required parameter: 'input'."
        return
    items = given if isinstance(given, list) else []
    seen: set[str] = set()
    for index, item in enumerate(items):
        yield from _item(f"input[{index}]", item)
        name = item.get("id")
        if name and name in seen:
            yield f"Duplicate item found with id {name}. Remove duplicate items and try again."
        seen.add(name or "")
    yield from _calls(items)
    yield from _reasoning(items, str(body.get("model")), trusted)


def _item(where: str, item: Any) -> Iterator[str]:
    kind = item.get("type", "message")
    name, prefix = item.get("id"), _PREFIXES.get(kind)
    if name is not None and prefix and not str(name).startswith(prefix):
        yield f"Invalid '{where}.id': '{name}'. Expected an ID that begins with '{prefix}'."
    match kind:
        case "message":
            yield from _message(where, item)
        case "function_call":
            if not isinstance(item.get("arguments"), str):
                yield f"Invalid type for '{where}.arguments': expected a string."
            if not NAME.match(item.get("name", "")):
                yield f"Invalid '{where}.name': string does not match pattern '^[a-zA-Z0-9_-]+$'."
            yield from _call_id(where, item)
        case "function_call_output":
            if not isinstance(item.get("output"), str | list):
                yield f"Missing required parameter: '{where}.output'."
            if item.get("output") == []:
                yield f"Invalid '{where}.output': empty array. Expected an array with minimum length 1."
            yield from _call_id(where, item)
        case "reasoning":
            if not isinstance(item.get("summary"), list):
                yield f"Missing required parameter: '{where}.summary'."
        case "item_reference":
            yield _NOT_KEPT.format(name)
        case _:
            yield f"Invalid value: '{kind}'. Supported values for '{where}.type' are: 'message', …"


def _call_id(where: str, item: Any) -> Iterator[str]:
    call_id = item.get("call_id")
    if not call_id:
        yield f"Missing required parameter: '{where}.call_id'."
    elif len(call_id) > 64:
        yield f"Invalid '{where}.call_id': string too long. Expected a string with maximum length 64."


def _message(where: str, item: Any) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        yield f"Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', 'user'."
    if not content:
        yield f"Invalid '{where}.content': it is empty."
    allowed = _PARTS.get(str(role), _PARTS["user"])
    for place, part in enumerate(content if isinstance(content, list) else []):
        kind = part.get("type")
        if kind not in allowed:
            names = " and ".join(map(repr, allowed))
            yield f"Invalid value: '{kind}' in {where}.content[{place}]. Supported values are: {names}."
        elif kind in ("input_text", "output_text") and not part.get("text"):
            yield f"Invalid '{where}.content[{place}].text': it is empty."


def _calls(items: list[Any]) -> Iterator[str]:
    calls: list[str] = []
    answered: set[str] = set()
    for item in items:
        call_id = str(item.get("call_id"))
        if item.get("type") == "function_call":
            if call_id in calls:
                yield f"Duplicate function call with call_id {call_id}."
            calls.append(call_id)
        if item.get("type") == "function_call_output":
            if call_id not in calls:
                yield f"No tool call found for function call output with call_id {call_id}."
            if call_id in answered:
                yield f"Duplicate output for function call with call_id {call_id}."
            answered.add(call_id)
    for call_id in calls:
        if call_id not in answered:
            yield f"No tool output found for function call {call_id}."


def _reasoning(items: list[Any], model: str, trusted: frozenset[str]) -> Iterator[str]:
    present = {item.get("id") for item in items if item.get("type") == "reasoning"}
    for index, item in enumerate(items):
        follows = _TAG.match(str(item.get("id")))
        if follows and f"rs_{follows[1]}" not in present:
            yield (
                f"Item '{item['id']}' of type '{item['type']}' was provided without its required"
                f" 'reasoning' item: 'rs_{follows[1]}'."
            )
        if item.get("type") != "reasoning":
            continue
        following = items[index + 1] if index + 1 < len(items) else {}
        kind = following.get("type", "message" if "role" in following else None)
        own = _TAG.match(str(following.get("id") or ""))
        strange = own is not None and f"rs_{own[1]}" != item.get("id")
        mine = kind == "function_call" or (kind == "message" and following.get("role") == "assistant")
        if not mine or strange:
            yield (
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following"
                " item."
            )
        secret = item.get("encrypted_content")
        thought = "".join(part.get("text", "") for part in item.get("summary") or [])
        if not secret:
            yield _NOT_KEPT.format(item.get("id"))
        elif secret not in trusted and secret != sign(model, thought):
            yield (
                f"The encrypted content {str(secret)[:12]}... could not be verified. Reason: Encrypted"
                " content could not be decrypted or parsed."
            )
