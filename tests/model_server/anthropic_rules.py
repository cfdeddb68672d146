"""What Anthropic Messages refuses with status 400, in its words as far as they are known.

One rule is harder than the provider's: a `tool_result` must have content. Parameters at the top level
and the insides of images and documents are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.model_server.wire import sign

SYSTEM_MESSAGE_MODELS = frozenset(
    {
        "claude-opus-4-8",
        *(f"claude-{family}-5" for family in ("opus", "sonnet", "fable", "mythos")),
        *(f"claude-{family}-5-1" for family in ("fable", "mythos")),
        *(f"claude-{family}-5-2" for family in ("fable", "mythos")),
        *(f"claude-{family}-5-5" for family in ("opus", "sonnet", "haiku")),
    }
)
"""Models that take `{"role": "system"}` inside a conversation: Claude Opus 4.8 and later."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
_KEYS = {
    "text": {"text", "citations", "cache_control"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input", "cache_control", "caller", "toolset_name"},
    "tool_result": {"tool_use_id", "content", "is_error", "cache_control", "toolset_name"},
    "image": {"source", "cache_control"},
    "document": {"source", "cache_control", "citations", "context", "title"},
}
_PREFILL = (
    "This model does not support assistant message prefill. The conversation must end with a user message."
)


def check_anthropic(
    body: Mapping[str, Any], headers: Mapping[str, str], trusted: frozenset[str]
) -> str | None:
    """The first reason to refuse the request, or None."""
    return next(_problems(body, headers, trusted), None)


def _problems(body: Mapping[str, Any], headers: Mapping[str, str], trusted: frozenset[str]) -> Iterator[str]:
    if "anthropic-version" not in headers:
        yield "anthropic-version: header is required"
    for key in ("model", "max_tokens", "messages"):
        if key not in body:
            yield f"{key}: Field required"
            return
    if not isinstance(body["max_tokens"], int) or body["max_tokens"] < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    budget = (body.get("thinking") or {}).get("budget_tokens")
    if budget is not None and budget >= body["max_tokens"]:
        yield "`max_tokens` must be greater than `thinking.budget_tokens`"
    yield from _tools(body.get("tools") or [])
    yield from _system(body.get("system"))
    messages = body["messages"]
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    yield from _order(messages, str(body["model"]))
    for index, message in enumerate(messages):
        yield from _message(f"messages.{index}", message, str(body["model"]), trusted)
    yield from _pairs(messages)
    marks = _marks(body)
    if marks > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."


def _tools(tools: list[Any]) -> Iterator[str]:
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.get("type", "custom") != "custom":
            continue
        where = f"tools.{index}.custom"
        name = tool.get("name", "")
        if not _NAME.match(name):
            yield f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        if name in names:
            yield "tools: Tool names must be unique."
        names.add(name)
        schema = tool.get("input_schema")
        if not isinstance(schema, dict):
            yield f"{where}.input_schema: Field required"
        elif "type" not in schema:
            yield f"{where}.input_schema.type: Field required"
        elif schema["type"] != "object":
            yield f"{where}.input_schema.type: Input should be 'object'"


def _system(system: Any) -> Iterator[str]:
    for index, block in enumerate(system if isinstance(system, list) else []):
        yield from _text(f"system.{index}", "system", block)


def _order(messages: list[Any], model: str) -> Iterator[str]:
    if messages[0].get("role") != "user":
        yield 'messages: first message must use the "user" role'
    previous = ""
    for index, message in enumerate(messages):
        role = message.get("role")
        if role not in ("user", "assistant", "system"):
            yield f"messages.{index}.role: Input should be 'user' or 'assistant'"
        if role == "system" and model not in SYSTEM_MESSAGE_MODELS:
            yield f"messages.{index}.role: role 'system' is not supported on this model"
        if role == "system" and previous == "assistant":
            yield f"messages.{index}: a system message must follow a user turn"
        previous = role
    if previous == "assistant":
        yield _PREFILL


def _message(where: str, message: Any, model: str, trusted: frozenset[str]) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if unknown := set(message) - {"role", "content"}:
        yield f"{where}.{sorted(unknown)[0]}: Extra inputs are not permitted"
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        yield f"{where}.content: Input should be a valid list"
        return
    if not content:
        yield f"{where}: {role} messages must have non-empty content"
    for index, block in enumerate(content):
        yield from _block(f"{where}.content.{index}", role, block, model, trusted)


def _block(where: str, role: str, block: Any, model: str, trusted: frozenset[str]) -> Iterator[str]:
    kind = block.get("type")
    if kind not in _KEYS:
        yield f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
        return
    if unknown := set(block) - _KEYS[kind] - {"type"}:
        yield f"{where}.{kind}.{sorted(unknown)[0]}: Extra inputs are not permitted"
    place = {"tool_use": "assistant", "thinking": "assistant", "redacted_thinking": "assistant"}
    if role != place.get(kind, role) or (kind == "tool_result" and role != "user"):
        yield f"{where}: `{kind}` blocks can only be in `{place.get(kind, 'user')}` messages"
    match kind:
        case "text":
            yield from _text(where, "messages", block)
        case "thinking":
            yield from _thinking(where, block, model, trusted)
        case "tool_use":
            yield from _tool_use(where, block)
        case "tool_result":
            yield from _tool_result(where, block)
        case _:
            pass


def _text(where: str, part: str, block: Any) -> Iterator[str]:
    text = block.get("text")
    if not isinstance(text, str):
        yield f"{where}.text.text: Field required"
    elif not text and block.get("cache_control"):
        yield f"{where}.text: cache_control cannot be set for empty text blocks"
    elif not text:
        yield f"{part}: text content blocks must be non-empty"
    elif not text.strip():
        yield f"{part}: text content blocks must contain non-whitespace text"


def _thinking(where: str, block: Any, model: str, trusted: frozenset[str]) -> Iterator[str]:
    signature = block.get("signature")
    if signature is None:
        yield f"{where}.thinking.signature: Field required"
    elif signature not in trusted and signature != sign(model, str(block.get("thinking"))):
        yield f"{where}: Invalid `signature` in `thinking` block"


def _tool_use(where: str, block: Any) -> Iterator[str]:
    if not _NAME.match(block.get("name", "")):
        yield f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
    if not _ID.match(block.get("id", "")):
        yield f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if not isinstance(block.get("input"), dict):
        yield f"{where}.tool_use.input: Input should be a valid dictionary"


def _tool_result(where: str, block: Any) -> Iterator[str]:
    content = block.get("content")
    if not content or (isinstance(content, str) and not content.strip()):
        yield f"{where}.tool_result.content: content must be non-empty"
    for part in content if isinstance(content, list) else []:
        if part.get("type") == "text":
            yield from _text(f"{where}.content", "messages", part)


def _pairs(messages: list[Any]) -> Iterator[str]:
    used: set[str] = set()
    open_ids: list[str] = []
    for index, message in enumerate(messages):
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        results = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
        leading = [block.get("type") for block in blocks[: len(results)]]
        missing = [call for call in open_ids if call not in results]
        if open_ids and (missing or leading != ["tool_result"] * len(results)):
            names = ", ".join(missing or open_ids)
            yield (
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks immediately"
                f" after: {names}. Each `tool_use` block must have a corresponding `tool_result` block in the"
                " next message."
            )
        for place, result in enumerate(results):
            if result in results[:place]:
                yield (
                    f"messages.{index}.content.{place}: each tool_use must have a single result."
                    f" Found multiple `tool_result` blocks with id: {result}"
                )
            elif result not in open_ids:
                yield (
                    f"messages.{index}.content.{place}: unexpected `tool_use_id` found in `tool_result`"
                    f" blocks: {result}. Each `tool_result` block must have a corresponding `tool_use` block"
                    " in the previous message."
                )
        open_ids = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        for call in open_ids:
            if call in used:
                yield "messages: `tool_use` ids must be unique"
            used.add(call)


def _marks(value: Any) -> int:
    """How many cache marks: not those inside a tool's schema or a call's input."""
    if isinstance(value, list):
        return sum(_marks(item) for item in value)
    if not isinstance(value, dict):
        return 0
    own = 1 if value.get("cache_control") else 0
    return own + sum(_marks(value.get(key)) for key in ("tools", "system", "messages", "content"))
