"""The composition root: from options and place to an open session. Puts objects together, decides nothing
else. Nothing is written into the person's project."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from letta_code.agent.memory_notes import MemoryNotes
from letta_code.agent.projects import Project, ProjectRegister, project_of
from letta_code.agent.prompting import Prompts
from letta_code.agent.reminder import Reminder
from letta_code.agent.retry import RetryPolicy
from letta_code.agent.session import Session
from letta_code.agent.skills import available_skills
from letta_code.agent.state import AgentState
from letta_code.cli.archive import archive_of, session_archive
from letta_code.cli.compaction import compaction_of, summariser_of
from letta_code.cli.fallback import fallback_of
from letta_code.cli.options import RunOptions
from letta_code.cli.place import DEFAULT_AGENT, Place
from letta_code.cli.rights import rules_of
from letta_code.cli.show import label, local_time
from letta_code.cli.trust import untrusted_warning
from letta_code.cli.undo import tools_undo, undo_in
from letta_code.conversations.store import Conversation
from letta_code.conversations.summary import ConversationSummary
from letta_code.core.ids import new_conversation_id
from letta_code.core.messages import ToolSpec
from letta_code.errors import AgentError, ConversationError, SandboxError, StorageError, UsageError
from letta_code.memory.git.repository import Author, MemoryRepository
from letta_code.memory.git.review import count_held
from letta_code.memory.prompt import PromptCache
from letta_code.models.base import Model
from letta_code.tools.base import Workspace, our_environment
from letta_code.tools.permissions.policy import Policy, mode_named
from letta_code.tools.toolbox import Toolbox, build_toolbox

if TYPE_CHECKING:
    from rich.console import RenderableType

    from letta_code.agent.rewind import Rewound
    from letta_code.agent.syncing import BackgroundSync
    from letta_code.archive.archive import Archive
    from letta_code.frontends.host import Session as SessionView
    from letta_code.frontends.undo import Wish
    from letta_code.tools.processes.sandbox import Sandbox


def packaged_base_prompt() -> str:
    """The base system prompt of a new agent."""
    return files("letta_code.agent").joinpath("base_prompt.md").read_text("utf-8")


class Workbench:
    """Opens sessions with one set of options in one place; the chat's host. `say` tells the person."""

    def __init__(self, place: Place, options: RunOptions, say: Callable[[str], None]) -> None:
        _check(options)
        self._place = place
        self._options = options
        self._say = say
        self._settings = place.settings()
        self._roots = _folders(place, options, self._settings.permissions.directories)
        self._agent: AgentState | None = None
        self._model: str | None = options.model
        for warning in self._settings.warnings:
            say(f"warning: {warning}")
        if self._settings.untrusted is not None and options.print_mode:
            say(f"warning: {untrusted_warning(self._settings.untrusted)}")
        if place.paths.temporary:
            say(f"warning: there is no home folder; everything is kept in {place.paths.data.parent} for now")
        self._sandbox = self._found_sandbox()

    async def open(self) -> Session:
        """The session that the options ask for.

        Raises:
            LettaError: there is no such agent or conversation, no model can be reached, or our files
                cannot be written.
        """
        session = self._wanted()
        if not self._options.print_mode and (held := count_held(session.memory)):
            self._say(f"note: {held} held back until you confirm: letta memory review")
        return session

    def _wanted(self) -> Session:
        options = self._options
        if options.conversation:
            found = self._place.conversations().find(options.conversation)
            owner = self._place.agents().load(found.key)
            if options.agent and self._place.agents().find(options.agent).key != owner.key:
                raise UsageError(f"{found.id} belongs to the agent {owner.name}", "leave --agent out")
            return self._session(owner, found.id, fork=options.fork)
        agent = self._existing_agent()
        if agent is None:
            # Without a model nothing is made.
            model = self._opened_model(self._model)
            return self._session(self._new_agent(), None, model)
        last = self._last_conversation(agent) if options.resume else None
        return self._session(agent, last, fork=options.fork)

    # What the chat's slash commands need ----------------------------------------------------------

    @property
    def history_file(self) -> Path:
        """Where typed lines are kept."""
        return self._place.paths.typed_lines()

    @property
    def log_file(self) -> Path:
        """Where the traceback of a bug is."""
        return self._place.paths.log_file()

    async def new_session(self) -> Session:
        """A new conversation of the same agent, with the same model."""
        return self._session(self._current(), None)

    async def resume(self, conversation_id: str) -> Session:
        """Open an earlier conversation, with its own agent."""
        found = self._place.conversations().find(conversation_id)
        return self._session(self._place.agents().load(found.key), found.id)

    def conversations(self) -> Sequence[ConversationSummary]:
        """The agent's conversations, latest first."""
        return self._place.conversations().list(self._current().key)

    async def open_model(self, session: SessionView, handle: str) -> None:
        """Let `session` ask the model `handle` from its next request on."""
        if not isinstance(session, Session):
            raise TypeError("the session was not opened here")
        model = self._opened_model(handle)
        await session.set_model(model).close()
        self._model = model.info.handle

    async def models(self) -> Sequence[str]:
        """Handles of the models that can be reached."""
        from letta_code.models.catalog import known_models
        from letta_code.models.providers import discover

        found = await asyncio.to_thread(discover, self._settings, self._place.environment)
        known = [
            handle
            for handle in known_models()
            if any(status.configured and handle.startswith(f"{status.provider}/") for status in found)
        ]
        return [*known, *(handle for status in found for handle in status.models if handle not in known)]

    def undo(self, session: SessionView, wish: Wish) -> Rewound:
        """Take back what the session's last turns changed in files, or say what that would do."""
        return undo_in(self._place, session, wish)

    async def search(self, session: SessionView, query: str) -> Sequence[RenderableType]:
        """Messages of the session's agent that fit."""
        from letta_code.cli.recall import chat_lines

        return await asyncio.to_thread(chat_lines, self._place.paths, session.agent.key, query)

    def memory_log(self) -> Sequence[str]:
        """The latest memory commits, one line each, newest first."""
        from letta_code.memory.git.log import log

        repository = self._place.agents().memory(self._current())
        return [
            f"{commit.revision[:10]}  {local_time(commit.when)}  {label(commit.reason.splitlines()[0])}"
            for commit in log(repository, 20)
        ]

    def cost(self, session: SessionView) -> Sequence[str]:
        """What the session's conversation took: its last turn, and each model."""
        from letta_code.cli.spending import conversation_lines

        key, conversation_id = session.agent.key, session.conversation.id
        return conversation_lines(self._place.conversations().spending(key, conversation_id))

    def context(self, session: SessionView) -> RenderableType:
        """What fills the window of the session's model."""
        from letta_code.cli.context import describe

        if not isinstance(session, Session):
            raise TypeError("the session was not opened here")
        return describe(session)

    # Choosing -------------------------------------------------------------------------------------

    def _current(self) -> AgentState:
        if self._agent is None:
            raise AgentError("no agent is open yet")
        return self._agent

    def _existing_agent(self) -> AgentState | None:
        """The agent that the options mean; None: one has to be created."""
        store = self._place.agents()
        if self._options.new_agent:
            return None
        if self._options.agent or store.list():
            return self._place.agent(self._options.agent)
        _, problems = store.list_with_problems()
        if problems:
            hint = "letta agents repair ID makes it anew from its memory; --new-agent starts afresh"
            raise AgentError(problems[0], hint)
        return None

    def _new_agent(self) -> AgentState:
        from letta_code.memory.seed import default_files

        store = self._place.agents()
        names = {state.name for state in store.list()}
        if DEFAULT_AGENT in names and not self._options.new_agent:  # another process made it at this moment
            return store.find(DEFAULT_AGENT)
        name, number = DEFAULT_AGENT, 1
        while name in names:
            number += 1
            name = f"{DEFAULT_AGENT}-{number}"
        try:
            state = store.create(name, packaged_base_prompt(), default_files())
        except UsageError:  # another process took the name at this moment
            return self._new_agent() if self._options.new_agent else store.find(DEFAULT_AGENT)
        self._say(
            f"created the agent {name}; its memory is in {self._place.paths.memory_worktree(state.key)}"
        )
        return state

    def _last_conversation(self, agent: AgentState) -> str:
        known = self._place.conversations().list(agent.key)
        use = self._place.projects().last(self._place.project)
        if use is not None and use.agent == agent.key and use.conversation is not None:
            if any(item.id == use.conversation for item in known):
                return use.conversation
            raise ConversationError(
                f"the last conversation of this folder, {use.conversation}, is gone or cannot be read",
                "letta conversations list shows the others; letta --new starts a new one",
            )
        if not known:
            raise ConversationError(
                f"{agent.name} has no conversation to go on with", "leave --continue out to start one"
            )
        self._say(
            f"no conversation was started here; going on with the latest of {agent.name}: "
            f"{known[0].id} ({label(known[0].title)}, in {label(known[0].cwd)})"
        )
        return known[0].id

    def _opened_model(self, handle: str | None) -> Model:
        from letta_code.models.providers import open_model

        return open_model(handle, self._settings, self._place.environment, self._options.base_url)

    def _opened(self) -> tuple[Path, ...]:
        """The folders in which tools and commands may write."""
        return (*self._roots, *(() if self._sandbox is None else self._sandbox.opened))

    def _found_sandbox(self) -> Sandbox | None:
        """The sandbox that is asked for; one that is missing is said, and ends a run that answers once."""
        settings, wanted = self._settings, self._options.sandbox
        if not (settings.sandbox.enabled if wanted is None else wanted):
            return None
        from letta_code.tools.processes.sandbox import find_sandbox

        environment = {**self._place.environment, **settings.environment}
        sandbox = find_sandbox(settings.sandbox, self._place.paths, environment, self._roots)
        if sandbox.problem and self._options.print_mode:
            raise SandboxError(f"the sandbox is asked for and {sandbox.problem}", sandbox.cure)
        if sandbox.problem:
            self._say(f"warning: no shell command will run: {sandbox.problem}. {sandbox.cure}")
        return sandbox

    # Putting together -----------------------------------------------------------------------------

    def _session(
        self, agent: AgentState, conversation_id: str | None, model: Model | None = None, fork: bool = False
    ) -> Session:
        store = self._place.conversations()
        repository = self._place.agents().memory(agent)
        conversation = None
        if conversation_id is not None and fork:
            conversation = store.fork(agent.key, conversation_id, self._place.project)
            self._say(f"note: {conversation.id} goes on from a copy of {conversation_id}")
        elif conversation_id is not None:
            conversation = store.open(agent.key, conversation_id)
        try:
            if model is None:
                model = self._opened_model(self._model or _last_model(conversation) or agent.model)
            if conversation is None:
                conversation = store.create(agent.key, self._place.project)
            session = self._assembled(agent, conversation, model, repository)
        except BaseException:
            if conversation is not None:
                conversation.close()
            raise
        self._agent = agent
        session.syncing = self._syncing(agent, repository)
        for note in conversation.recovered:
            self._say(f"note: {label(note)}")
        try:
            moved = self._place.projects().record(self._place.project, agent.key, conversation.id)
            if moved is not None:
                self._say(f"warning: which conversation each folder used last was damaged; it is now {moved}")
        except StorageError as error:
            self._say(f"warning: {error.message}; letta -c will not find this conversation by itself")
        return session

    def _syncing(self, agent: AgentState, repository: MemoryRepository) -> BackgroundSync | None:
        """What syncs memory after each turn, when that is set; a first sync is started."""
        if self._settings.memory.sync != "turn":
            return None
        from letta_code.cli.memory.sharing import background_sync

        syncing = background_sync(self._place, agent, repository)
        if syncing is not None:
            if news := syncing.news():
                self._say(f"warning: {news}")
            syncing.moved_to(repository.head())
        return syncing

    def _assembled(
        self, agent: AgentState, conversation: Conversation, model: Model, repository: MemoryRepository
    ) -> Session:
        place, options, permissions = self._place, self._options, self._settings.permissions
        register = ProjectRegister(place.paths)
        project = project_of(place.project, register)
        if register.moved is not None:
            self._say(f"warning: the list of known projects was damaged; it is now {register.moved}")
        workspace = self._workspace(agent, conversation.id, repository)
        archive = session_archive(place, self._settings, agent.key, self._say)
        compaction = compaction_of(agent, self._say)
        mode = mode_named(options.permission_mode or permissions.mode)
        policy = Policy(mode, rules_of(place, options, permissions, self._say), workspace, self._holds)
        return Session(
            agent=agent,
            conversation=conversation,
            model=model,
            toolbox=self._toolbox(agent, workspace, repository, project, model.info.handle, archive, policy),
            policy=policy,
            workspace=workspace,
            memory=repository,
            prompts=Prompts(PromptCache(place.paths.compiled_prompts()), repository, self._base(agent)),
            reminder=Reminder(
                workspace,
                agent.id,
                conversation.id,
                MemoryNotes(repository, project, self._settings.memory.budget),
                archive,
            ),
            skills=available_skills(place.paths, place.project, repository.snapshot()),
            retry=RetryPolicy.from_environment(place.environment),
            max_turns=options.max_turns,
            fallback=fallback_of(place, options, self._settings, model.info, self._say),
            compaction=compaction,
            summariser=summariser_of(place, self._settings, compaction),
        )

    @property
    def _holds(self) -> bool:
        return self._settings.memory.review == "hold"

    def _workspace(self, agent: AgentState, conversation_id: str, repository: MemoryRepository) -> Workspace:
        place, memory = self._place, self._place.paths.memory_worktree(agent.key)
        return Workspace(
            project=place.project,
            roots=(*self._roots, memory.resolve()),
            overflow=place.paths.overflow(conversation_id),
            memory=memory,
            environment={
                **place.environment,
                **self._settings.environment,
                "AGENT_ID": agent.id,
                "LETTA_AGENT_ID": agent.id,
                "CONVERSATION_ID": conversation_id,
                "LETTA_CONVERSATION_ID": conversation_id,
                "MEMORY_DIR": str(memory),
                "LETTA_MEMORY_DIR": str(memory),
            },
            sandbox=None if self._sandbox is None else self._sandbox.showing(repository.git_dir),
            undo=tools_undo(
                place, agent.key, conversation_id, our_environment(place.environment, self._opened())
            ),
        )

    def _toolbox(
        self,
        agent: AgentState,
        workspace: Workspace,
        repository: MemoryRepository,
        project: Project,
        handle: str,
        archive: Archive | None,
        policy: Policy | None = None,
    ) -> Toolbox:
        return build_toolbox(
            workspace,
            repository,
            Author(agent.name, f"{agent.id}@letta.local"),
            agent.id,
            project=project.slug,
            holds=self._holds,
            agents_tools=(*agent.tools, *_trained_on(handle)),
            sight=None if policy is None else policy.left_out,
            archive=archive,
            stored=(self._place.paths, agent.key),
        )

    def specs(
        self, agent: AgentState, repository: MemoryRepository, project: Project, handle: str
    ) -> tuple[ToolSpec, ...]:
        """What a session would tell the model `handle` of its tools; nothing is opened or written."""
        workspace = self._workspace(agent, new_conversation_id(), repository)
        archive = archive_of(self._place, self._settings, agent.key, lambda _: None)
        return self._toolbox(agent, workspace, repository, project, handle, archive).specs()

    def _base(self, agent: AgentState) -> str:
        """The base prompt of this run. One that is not the agent's own is kept beside it, so that
        `letta context --turn` can show what the model saw."""
        store = self._place.agents()
        base = store.base_prompt(agent)
        given = self._options.system_prompt
        if given is not None:
            try:
                base = given.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"--system-prompt {given} cannot be read: {error}") from error
        if self._options.append_system_prompt:
            base = f"{base.rstrip()}\n\n{self._options.append_system_prompt}\n"
        store.save_base_prompt(agent.key, base)
        return base


def _trained_on(handle: str) -> tuple[str, ...]:
    """Tools that only models of this make know from their training."""
    return ("memory_apply_patch",) if "codex" in handle else ()


def _last_model(conversation: Conversation | None) -> str | None:
    if conversation is None or not conversation.history.steps:
        return None
    return conversation.history.steps[-1].sent.chosen


def _check(options: RunOptions) -> None:
    chosen = [
        name
        for name, given in (
            ("--continue", options.resume),
            ("--conversation", options.conversation),
            ("--new", options.new),
        )
        if given
    ]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other", "give one of them")
    if options.fork and not (options.resume or options.conversation):
        raise UsageError("--fork copies a conversation", "letta -c --fork, or letta --conversation ID --fork")
    if options.new_agent and (options.agent or options.resume or options.conversation):
        raise UsageError("--new-agent starts afresh", "leave --agent, --continue and --conversation out")


def _folders(place: Place, options: RunOptions, configured: Sequence[str]) -> tuple[Path, ...]:
    given = [Path.cwd() / folder for folder in options.added_directories]
    for folder in given:
        if not folder.is_dir():
            raise UsageError(f"no such folder: {folder}", "--add-dir names a folder that exists")
    named = [place.project / os.path.expanduser(folder) for folder in configured]
    return (place.project, *(folder.resolve() for folder in (*given, *named)))
