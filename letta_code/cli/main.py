"""The command tree of `letta`, its options and their help. What they do is in the neighbouring modules,
imported only when they run, so that `letta --help` and shell completion stay quick."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command_name
from typer.models import CommandInfo, TyperInfo

from letta_code import __version__
from letta_code.cli import agents, archive, config, conversations, memory
from letta_code.cli.context import context_command
from letta_code.cli.doctor import doctor_command
from letta_code.cli.models import models_command
from letta_code.cli.options import OutputFormat, PermissionMode, RunOptions
from letta_code.cli.place import Place, complete_agents, complete_conversations
from letta_code.cli.recall import index_app
from letta_code.cli.stats import stats_command
from letta_code.cli.trust import trust_command
from letta_code.cli.undo import undo_command
from letta_code.cli.words import arrange, split_rules
from letta_code.errors import UsageError

_MODEL, _WHO, _RIGHTS, _OUTPUT, _PLACE = "Model", "Agent and conversation", "Permissions", "One shot", "Place"

_EPILOG = """
\b
Examples:
  letta                                   chat in this folder
  letta -p "why does test_totals fail?"   one answer on stdout
  git diff | letta -p "review this"       standard input joins the prompt
  letta -c                                go on where this folder's last chat stopped
  letta --model ollama/qwen3 --new        a new conversation with another model

\b
Exit codes: 0 done, 1 failed, 2 usage, 75 worth retrying (overload, network),
130 interrupted, 143 terminated.

Colours follow NO_COLOR and TERM; LETTA_HOME=DIR keeps everything of Letta Code below DIR.
"""


class RootGroup(TyperGroup):
    """Help whose options are listed in sections (Typer does that only in its rich mode)."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each panel, then the commands."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                panel = getattr(parameter, "rich_help_panel", None) or "Options"
                sections.setdefault(panel, []).append(record)
        general = sections.pop("Options", [])
        for title, records in [*sections.items(), ("Other options", general)]:
            with formatter.section(title):
                formatter.write_dl(records)
        self.format_commands(ctx, formatter)


_HELP = {"help_option_names": ["--help", "-h"]}

app = typer.Typer(
    name="letta",
    cls=RootGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    subcommand_metavar="[PROMPT] | COMMAND [ARGS]...",
    epilog=_EPILOG,
)
app.add_typer(agents.app, name="agents")
app.add_typer(conversations.app, name="conversations")
app.add_typer(memory.app, name="memory")
app.add_typer(index_app, name="index")
app.add_typer(archive.app, name="archive")
app.command("context")(context_command)
app.command("stats")(stats_command)
app.command("models")(models_command)
app.add_typer(config.app, name="config")
app.command("trust")(trust_command)
app.command("doctor")(doctor_command)
app.command("undo")(undo_command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"letta-code {__version__}")
        raise typer.Exit


@app.callback(context_settings=_HELP)
def letta(
    ctx: typer.Context,
    print_mode: Annotated[
        bool,
        typer.Option(
            "-p",
            "--print",
            "--prompt",
            rich_help_panel=_OUTPUT,
            help="Answer the PROMPT once on stdout and leave. Standard input, when piped, joins the prompt.",
        ),
    ] = False,
    output_format: Annotated[
        OutputFormat,
        typer.Option(
            rich_help_panel=_OUTPUT,
            help="text: the answer. json: one result object. stream-json: every event as a line of JSON.",
        ),
    ] = OutputFormat.text,
    max_turns: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=_OUTPUT,
            help="Stop after N requests to the model for one prompt.",
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", rich_help_panel=_OUTPUT, help="Tell what happens (tools, retries) on stderr."
        ),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="PROVIDER/NAME",
            rich_help_panel=_MODEL,
            help="The model, such as anthropic/claude-sonnet-5-5 or ollama/qwen3. See `letta models`.",
        ),
    ] = None,
    fallback_model: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER/NAME",
            rich_help_panel=_MODEL,
            help="The model that goes on with a turn when the first one stays overloaded or out of reach.",
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            rich_help_panel=_MODEL,
            help="Address of the model's server, when it is not the provider's own.",
        ),
    ] = None,
    system_prompt: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_MODEL,
            help="Use this file as the agent's base system prompt. {CORE_MEMORY} says where memory goes.",
        ),
    ] = None,
    append_system_prompt: Annotated[
        str,
        typer.Option(metavar="TEXT", rich_help_panel=_MODEL, help="Add TEXT after the base system prompt."),
    ] = "",
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            "-a",
            metavar="ID|NAME",
            rich_help_panel=_WHO,
            autocompletion=complete_agents,
            help="Which agent. Without it: the one this folder used last, else the default one.",
        ),
    ] = None,
    new_agent: Annotated[
        bool,
        typer.Option(
            "--new-agent", rich_help_panel=_WHO, help="Create an agent with fresh memory and use it."
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--continue",
            "-c",
            rich_help_panel=_WHO,
            help="Go on with this folder's last conversation, or else the agent's latest one.",
        ),
    ] = False,
    conversation: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            rich_help_panel=_WHO,
            autocompletion=complete_conversations,
            help="Go on with this conversation, from any folder. The beginning of its id is enough.",
        ),
    ] = None,
    new: Annotated[
        bool,
        typer.Option("--new", rich_help_panel=_WHO, help="Start a new conversation. This is the default."),
    ] = False,
    fork: Annotated[
        bool,
        typer.Option(
            "--fork",
            rich_help_panel=_WHO,
            help="With --continue or --conversation: go on with a copy of it, and leave it as it is.",
        ),
    ] = False,
    permission_mode: Annotated[
        PermissionMode | None,
        typer.Option(
            rich_help_panel=_RIGHTS,
            help="default: ask. acceptEdits: edit files of the project without asking. plan: read only. "
            "bypassPermissions: never ask.",
        ),
    ] = None,
    allowed_tools: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-tools",
            "--allowedTools",
            metavar="LIST",
            rich_help_panel=_RIGHTS,
            help="Rules that need no question, such as 'Bash(git log:*),Edit(src/**)'. May be repeated.",
        ),
    ] = None,
    disallowed_tools: Annotated[
        list[str] | None,
        typer.Option(
            "--disallowed-tools",
            "--disallowedTools",
            metavar="LIST",
            rich_help_panel=_RIGHTS,
            help="Rules that are refused, in the same form. They win over everything else.",
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--cwd", "-C", metavar="DIR", rich_help_panel=_PLACE, help="Work in DIR instead of here."
        ),
    ] = None,
    add_dir: Annotated[
        list[Path] | None,
        typer.Option(
            "--add-dir",
            metavar="DIR",
            rich_help_panel=_PLACE,
            help="Let tools work in DIR as well. May be repeated.",
        ),
    ] = None,
    sandbox: Annotated[
        bool | None,
        typer.Option(
            "--sandbox/--no-sandbox",
            rich_help_panel=_RIGHTS,
            help="Run shell commands in a sandbox (Linux, bubblewrap), whatever the settings say.",
        ),
    ] = None,
    show_version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> int:
    """A coding agent in your terminal that remembers: its memory is a Git repository of yours.

    letta [PROMPT] opens a chat; letta -p PROMPT answers once. A prompt of several words is quoted.
    """
    options = RunOptions(
        prompt=ctx.obj.prompt,
        print_mode=print_mode,
        output_format=output_format.value,
        model=model,
        fallback_model=fallback_model,
        base_url=base_url,
        agent=agent,
        new_agent=new_agent,
        resume=resume,
        conversation=conversation,
        new=new,
        fork=fork,
        permission_mode=permission_mode.value if permission_mode is not None else None,
        allowed_tools=_rules(allowed_tools),
        disallowed_tools=_rules(disallowed_tools),
        max_turns=max_turns,
        system_prompt=system_prompt,
        append_system_prompt=append_system_prompt,
        directory=directory,
        added_directories=tuple(add_dir or ()),
        sandbox=sandbox,
        verbose=verbose,
    )
    ctx.obj = Place.find(directory)
    if ctx.invoked_subcommand is not None:
        if options != RunOptions(directory=directory):
            raise UsageError(
                f"only --cwd may come before {ctx.invoked_subcommand}",
                f"the other options belong to a prompt; see letta {ctx.invoked_subcommand} --help",
            )
        return 0
    from letta_code.cli.run import run_prompt

    return run_prompt(options, ctx.obj)


def invoke(words: Sequence[str]) -> int:
    """Run the command line `words`; the result is the exit code.

    Raises:
        LettaError: a person can fix it.
        typer.TyperException: a subcommand was called wrongly.
    """
    command = cast(TyperGroup, typer.main.get_command(_tree(words)))
    takes_value = {
        name: not getattr(parameter, "is_flag", False)
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    takes_value |= dict.fromkeys(_HELP["help_option_names"], False)
    groups, commands = app.registered_groups, app.registered_commands
    known = [*(group.name for group in groups), *(single.name for single in commands)]
    arranged = arrange(words, takes_value, [name for name in known if name is not None])
    result = command.main(
        list(arranged.arguments),
        prog_name="letta",
        standalone_mode=False,
        obj=RunOptions(prompt=arranged.prompt),
    )
    return result if isinstance(result, int) else 0


def _tree(words: Sequence[str]) -> typer.Typer:
    """The commands that `words` can mean: to make all of them takes longer than most of them run."""
    if {"--help", "-h"}.intersection(words) or "_LETTA_COMPLETE" in os.environ:
        return app
    tree = copy(app)
    tree.registered_commands = [single for single in app.registered_commands if single.name in words]
    tree.registered_groups = [
        _narrowed(group, words[words.index(group.name) + 1 :])
        for group in app.registered_groups
        if group.name in words
    ]
    return tree


def _narrowed(group: TyperInfo, words: Sequence[str]) -> TyperInfo:
    """`group` with that command alone which `words` begin with; all of it when they begin with none. (A group
    without a name is a part of the one that it is in.)"""
    whole = group.typer_instance
    if whole is None or not words:
        return group
    tree, narrow = copy(whole), copy(group)
    tree.registered_commands = [single for single in whole.registered_commands if _name(single) == words[0]]
    tree.registered_groups = [part for part in whole.registered_groups if part.name == words[0]] or [
        kept
        for part in whole.registered_groups
        if not part.name and (kept := _narrowed(part, words)) is not part
    ]
    narrow.typer_instance = tree
    return narrow if tree.registered_commands or tree.registered_groups else group


def _name(command: CommandInfo) -> str:
    return command.name or get_command_name(command.callback.__name__) if command.callback else ""


def _rules(lists: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(rule for text in lists or () for rule in split_rules(text))
