"""What servers send: error bodies for a prompt that is too long, as each of them words it, and pages."""

from __future__ import annotations

from typing import Any

GATEWAY_PAGE = (
    "<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n<body>\r\n"
    "<center><h1>503 Service Temporarily Unavailable</h1></center>\r\n<hr><center>nginx</center>\r\n"
    + "<!-- padding for older browsers -->\r\n" * 40
    + "</body>\r\n</html>\r\n"
)
CAPTIVE_PAGE = (
    "<!DOCTYPE html>\n<html><head><title>Sign in to the guest network</title></head>\n"
    "<body><form action='/login'><input name='room'></form></body></html>\n"
)


def _openai(message: str, code: str | None, param: str | None, kind: str = "invalid_request_error") -> Any:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _anthropic(message: str) -> Any:
    return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


# (whose, status, body, words of it that the person must see). Public wordings of these servers: Anthropic's
# and OpenAI's API errors, server-context.cpp of llama.cpp, the OpenAI route of vLLM, the runner of Ollama,
# and LM Studio's engine.
OVERFLOWS: tuple[tuple[str, int, Any, str], ...] = (
    (
        "Anthropic",
        400,
        _anthropic("prompt is too long: 210512 tokens > 200000 maximum"),
        "prompt is too long",
    ),
    (
        "Anthropic, with the output",
        400,
        _anthropic(
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input "
            "length or `max_tokens` and try again"
        ),
        "exceed context limit",
    ),
    (
        "OpenAI",
        400,
        _openai(
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "context_length_exceeded",
            "input",
        ),
        "exceeds the context window",
    ),
    (
        "OpenAI, Chat Completions",
        400,
        _openai(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130512 "
            "tokens. Please reduce the length of the messages.",
            "context_length_exceeded",
            "messages",
        ),
        "maximum context length",
    ),
    (
        "Ollama",
        400,
        _openai("the input length exceeds the context length", None, None),
        "exceeds the context length",
    ),
    (
        "llama.cpp",
        400,
        {
            "error": {
                "code": 400,
                "message": "request (9412 tokens) exceeds the available context size (8192 tokens), try "
                "increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9412,
                "n_ctx": 8192,
            }
        },
        "exceeds the available context size",
    ),
    (
        "vLLM",
        400,
        {
            "error": {
                "message": "This model's maximum context length is 16384 tokens. However, you requested "
                "122946 tokens (112946 in the messages, 10000 in the completion). Please reduce the length "
                "of the messages or completion.",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            }
        },
        "maximum context length",
    ),
    (
        "vLLM before 0.10",
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 "
            "tokens (4000 in the messages, 1000 in the completion). Please reduce the length of the messages "
            "or completion.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        "maximum context length",
    ),
    (
        "LM Studio",
        400,
        {
            "error": "Trying to keep the first 9412 tokens when context the overflows. However, the model is "
            "loaded with context length of only 4096 tokens, which is not enough. Try to load the model with "
            "a larger context length, or provide a shorter input"
        },
        "context length of only",
    ),
)
