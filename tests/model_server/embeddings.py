"""`POST /v1/embeddings`: vectors that depend on the text alone, and what goes wrong with them."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

FAULTS = ("drop", "fewer", "nan", "zero", "ragged", "html", "no_object")


class Embeddings:
    """Embeds a text as the count of its words, each at a place of its own; words of one of `concepts` share
    a place, so that texts without a common word can be near. `limit` is the number of characters above which
    a text is refused, as small models do. Each of `faults` goes wrong with one request: a status, or one of
    `FAULTS`."""

    def __init__(
        self,
        concepts: Sequence[Sequence[str]] = (),
        *,
        dimensions: int = 64,
        limit: int | None = None,
        faults: Sequence[int | str] = (),
    ) -> None:
        for fault in faults:
            if isinstance(fault, str) and fault not in FAULTS:
                raise ValueError(f"{fault} is no fault: {', '.join(FAULTS)}")
        self.dimensions = dimensions
        self.limit = limit
        self.texts: list[str] = []
        """Every text that got a vector."""
        self._same = {word: words[0] for words in concepts for word in words}
        self._faults = list(faults)
        self._lock = threading.Lock()

    def answer(self, body: Any) -> tuple[int, Any] | None:
        """Status and body; None: the connection is cut."""
        texts = body.get("input") if isinstance(body, Mapping) else None
        problem = _problem(body, texts, self.limit)
        if problem:
            return 400, {"error": {"message": problem, "type": "invalid_request_error", "code": None}}
        assert isinstance(texts, list)
        with self._lock:
            fault = self._faults.pop(0) if self._faults else None
        if isinstance(fault, int):
            return fault, {"error": {"message": "scripted", "type": "server_error", "code": None}}
        if fault == "drop":
            return None
        if fault == "html":
            return 200, "<html><title>Log in</title></html>"
        if fault == "no_object":
            return 200, []
        vectors = [_spoiled(self._vector(text), fault, place) for place, text in enumerate(texts)]
        if fault == "fewer":
            vectors.pop()
        if fault is None:
            with self._lock:
                self.texts += texts
        rows = [
            {"object": "embedding", "index": place, "embedding": vector}
            for place, vector in enumerate(vectors)
        ]
        # Backwards: what counts is the index.
        return 200, {"object": "list", "data": rows[::-1], "model": body["model"], "usage": _USAGE}

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dimensions
        for word in re.findall(r"[a-z0-9]+|[^\x00-\x7f]", text.casefold()):
            vector[zlib.crc32(self._same.get(word, word).encode()) % self.dimensions] += 1.0
        vector[0] += 0.01  # no text is nothing
        return vector


_USAGE = {"prompt_tokens": 1, "total_tokens": 1}


def _problem(body: Any, texts: Any, limit: int | None) -> str:
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        return "input must be a list of texts"
    if not isinstance(body.get("model"), str) or body.get("encoding_format", "float") != "float":
        return "model must be named, and the format be float"
    if limit is not None and any(len(text) > limit for text in texts):
        return "input is too large to process"
    return ""


def _spoiled(vector: list[float], fault: str | None, place: int) -> list[float]:
    if fault == "nan":
        return [float("nan"), *vector[1:]]
    if fault == "zero":
        return [0.0] * len(vector)
    return vector[place % 2 :] if fault == "ragged" else vector
