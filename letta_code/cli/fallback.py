"""The model of `--fallback-model` or the setting `fallbackModel`: checked when a session opens, opened when
it is needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from letta_code.agent.session import Fallback
from letta_code.cli.options import RunOptions
from letta_code.cli.place import Place
from letta_code.errors import LettaError, UsageError
from letta_code.models.base import ModelInfo
from letta_code.settings.loading import Settings


def fallback_of(
    place: Place, options: RunOptions, settings: Settings, main: ModelInfo, say: Callable[[str], None]
) -> Fallback | None:
    """What answers when `main` stays out of reach; None when nothing was named.

    Raises:
        LettaError: the flag names a model that cannot be had. For the setting that is only said.
    """
    from letta_code.models.providers import locate, open_model

    handle = options.fallback_model or settings.fallback_model
    if not handle or (handle == main.handle and not options.fallback_model):
        return None
    if handle == main.handle:
        raise UsageError(f"--fallback-model {handle} is the model itself", "name another one")
    # --base-url is where the main model is; another model of the same provider is there too.
    same = handle.partition("/")[0].strip().lower() == main.provider
    base_url = options.base_url if same else None
    try:
        locate(handle, settings, place.environment, base_url)
    except LettaError as error:
        if options.fallback_model:
            raise
        say(f"warning: the fallback model {handle} cannot be used: {error.message}")
        return None
    return Fallback(handle, partial(open_model, handle, settings, place.environment, base_url))
