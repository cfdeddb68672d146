"""What the two OpenAI dialects share: the client and data URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from letta_code.core.messages import Image
from letta_code.models.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI


def connect(endpoint: Endpoint, http: httpx2.AsyncClient) -> tuple[AsyncOpenAI, type[Exception]]:
    """The SDK's client for `endpoint` and the class its errors descend from."""
    from openai import AsyncOpenAI, Omit, OpenAIError

    # Organisation and project from OpenAI's variables are nobody else's business.
    own = endpoint.provider == "openai"
    headers = {} if own else {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
    client = AsyncOpenAI(
        api_key=endpoint.api_key or "none",  # the SDK wants one; a local server does not look at it
        base_url=endpoint.base_url,
        max_retries=0,
        http_client=http,
        default_headers=headers,  # type: ignore[arg-type]
    )
    return client, OpenAIError


def data_url(image: Image) -> str:
    """The picture as a URL that holds it."""
    return f"data:{image.media_type};base64,{image.data}"
