"""The permission rules of a session, from settings and options, with where each was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from letta_code.agent.skills import builtin_folder
from letta_code.cli.options import RunOptions
from letta_code.cli.place import Place
from letta_code.cli.show import label
from letta_code.errors import UsageError
from letta_code.settings.loading import PermissionSettings
from letta_code.tools.permissions.rules import Rule, Rules


def rules_of(
    place: Place, options: RunOptions, permissions: PermissionSettings, say: Callable[[str], None]
) -> Rules:
    """All rules. An allow rule of the settings that is none is left out and said: that is never wider.

    Raises:
        UsageError: one that asks or denies is none, or one of the command line.
    """
    skills = tuple(f"Read(/{folder}/**)" for folder in (place.paths.user_skills(), builtin_folder()))
    origins = {("allow", rule): "built in" for rule in skills}
    origins |= {("allow", rule): "--allowed-tools" for rule in options.allowed_tools}
    origins |= {("deny", rule): "--disallowed-tools" for rule in options.disallowed_tools}
    origins |= permissions.origins
    for kind, rules in (("ask", permissions.ask), ("deny", permissions.deny)):
        for rule in rules:
            try:
                Rule.parse(rule)
            except UsageError as error:
                where = permissions.origins.get((kind, rule), "the settings")
                raise UsageError(f"{where}: {kind}: {label(error.message)}", error.hint) from error
    return Rules(
        allow=(*_usable(permissions.allow, say), *options.allowed_tools, *skills),
        ask=permissions.ask,
        deny=(*permissions.deny, *options.disallowed_tools),
        origins=origins,
    )


def _usable(rules: Sequence[str], say: Callable[[str], None]) -> list[str]:
    found = []
    for rule in rules:
        try:
            Rule.parse(rule)
            found.append(rule)
        except UsageError as error:
            say(f"warning: {label(error.message)}; it allows nothing")
    return found
