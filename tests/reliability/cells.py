"""Plays one fault in one dialect, in `letta -p` or in the chat, and says what of the promise did not hold.

Every function that judges returns the list of what is wrong; nothing is wrong when it is empty.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from tests.cli.harness import Done, Letta
from tests.model_server import ModelServer, Request, turn
from tests.model_server.wire import texts
from tests.reliability.faults import PROMPT, Answered, Fault
from tests.reliability.terminal import Terminal

Form = Literal["one-shot", "chat"]
FORMS: tuple[Form, ...] = ("one-shot", "chat")

STILL = "Are you still there?"
YES = "Yes, I am still here."
RESUME = "Go on with it."
RESUMED = "I go on where we were."
_TURN_ENDED = re.compile(r"\d+ steps? · .+ · window ")


@dataclass(frozen=True, slots=True)
class Way:
    """One dialect, a provider that speaks it, and two models."""

    name: str
    handle: str
    other_model: str
    provider: str

    def environment(self, url: str, fault: Fault | None = None) -> dict[str, str]:
        """What makes `letta` talk to `url`, and as impatient as the fault wants it."""
        idle = None if fault is None else fault.idle
        more = {} if idle is None else {"LETTA_STREAM_IDLE_SECONDS": str(idle)}
        return {f"{self.provider}_BASE_URL": url, f"{self.provider}_API_KEY": "sk-test-0123456789", **more}


WAYS = (
    Way("Anthropic Messages", "anthropic/claude-opus-4-8", "anthropic/claude-sonnet-5-5", "ANTHROPIC"),
    Way("OpenAI Responses", "openai/gpt-6.2-sol", "openai/gpt-5.6-sol", "OPENAI"),
    Way("Chat Completions", "vllm/scripted", "vllm/other", "VLLM"),
)


def other_way(way: Way) -> Way:
    """Another dialect, in which a conversation of `way` is resumed."""
    return WAYS[(WAYS.index(way) + 1) % len(WAYS)]


class Run(Protocol):
    """Runs `letta WORDS` to its end."""

    def __call__(self, *words: str, env: Mapping[str, str] | None = None) -> Done: ...


def play(fault: Fault, way: Way, form: Form, folder: Path) -> list[str]:
    """Play the fault below `folder` (which is filled), then resume the conversation in another dialect and
    with another model of the same one."""
    letta = fresh(folder)
    wrong = one_shot(fault, way, letta) if form == "one-shot" else chat(fault, way, letta)
    wrong += resumed(fault, other_way(way), other_way(way).handle, letta, form)
    return wrong + resumed(fault, way, way.other_model, letta, form) + logged(letta)


def logged(letta: Letta) -> list[str]:
    """A bug that reached the log."""
    wrong = []
    for log in (letta.home / "log").rglob("*"):
        if log.is_file() and "Traceback" in log.read_text("utf-8", "replace"):
            wrong.append(f"a traceback in {log.name}")
    return wrong


def fresh(folder: Path) -> Letta:
    """A `letta` with a home and a project of its own."""
    project = folder / "project"
    project.mkdir(parents=True)
    (project / "a.py").write_text("print(1)\n")
    environment = {
        "LETTA_RETRY_BASE_SECONDS": "0",
        "NO_COLOR": "1",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
    }
    return Letta(folder / "home", project, environment)


@contextmanager
def place_of(fault: Fault, *more: dict[str, Any]) -> Iterator[tuple[ModelServer, str]]:
    """A server that plays the fault and then `more`, and the address at which `letta` looks for it."""
    with ModelServer([*fault.turns, *more], tls=fault.place == "untrusted certificate") as server:
        match fault.place:
            case "nothing listens":
                with socket.socket() as taken:  # bound and not listening: nobody else can have it
                    taken.bind(("127.0.0.1", 0))
                    yield server, f"http://127.0.0.1:{taken.getsockname()[1]}"
            case "unknown name":
                yield server, "http://model.invalid:8000"
            case "no TLS":
                yield server, server.url.replace("http:", "https:")
            case _:
                yield server, server.url


def one_shot(fault: Fault, way: Way, run: Run) -> list[str]:
    """Meet the fault in `letta -p`."""
    with place_of(fault) as (server, url):
        done = run("-p", "-m", way.handle, PROMPT, env=way.environment(url, fault))
        wrong = requests_wrong(fault, server)
    return wrong + _streams(fault, done)


def requests_wrong(fault: Fault, server: ModelServer) -> list[str]:
    wrong = [f"refused by the server: {said}" for said in server.violations]
    if fault.place == "server" and server.remaining:
        wrong.append(f"not asked for: {[item.index for item in server.remaining]}")
    seen = server.requests
    if fault.requests is not None and len(seen) != fault.requests:
        wrong.append(f"{len(seen)} requests, not {fault.requests}")
    if fault.gap and len(seen) > 1 and seen[1].at - seen[0].at < fault.gap:
        wrong.append(f"asked again after {seen[1].at - seen[0].at:.2f} s, not {fault.gap} s")
    return wrong


def _streams(fault: Fault, done: Done) -> list[str]:
    lines = [line for line in done.err.splitlines() if not line.startswith("created the agent ")]
    errors = [line for line in lines if line.startswith("letta: ")]
    hints = [line for line in lines if line.startswith("  ")]
    others = [line for line in lines if line not in errors and line not in hints]
    wrong = ["a traceback"] if "Traceback" in done.err + done.out else []
    end = fault.end
    if isinstance(end, Answered):
        expected = f"{end.text}\n" if end.text else ""
        wrong += [f"exit code {done.code}, not 0"] if done.code else []
        wrong += [f"the answer is {done.out!r}"] if done.out != expected else []
        wrong += [f"stderr has {line!r}" for line in errors + hints]
        warned = [line for line in others if end.warning and line.startswith("warning: ")]
        if end.warning and (len(warned) != 1 or end.warning not in warned[0]):
            wrong.append(f"warnings: {warned}")
        return wrong + [f"stderr has {line!r}" for line in others if line not in warned]
    wrong += [f"exit code {done.code}, not {end.code}"] if done.code != end.code else []
    if len(errors) != 1 or end.words not in errors[0] or len(hints) > 1:
        wrong.append(f"stderr is {done.err!r}")
    return wrong + [f"stderr has {line!r}" for line in others]


def chat(fault: Fault, way: Way, letta: Letta) -> list[str]:
    """The fault, then another question in the same chat. Where no server can be reached, another model is
    chosen in between, as a person would."""
    other = other_way(way)
    still = turn(YES, when={"contains": STILL})
    with place_of(fault, {**still, "optional": True}) as (server, url), ModelServer([still]) as near:
        environment = way.environment(url, fault) | other.environment(near.url)
        with Terminal(letta, environment, "-m", way.handle) as terminal:
            terminal.until(lambda text: _ready(text, 0))
            terminal.type(f"{PROMPT}\r")
            terminal.until(lambda text: _ready(text, 1))
            wrong = requests_wrong(fault, server)
            if fault.place != "server":
                terminal.type(f"/model {other.handle}\r")
                terminal.until(lambda text: text.count(other.handle) > 1 and _ready(text, 1))
            terminal.type(f"{STILL}\r")
            terminal.until(lambda text: _ready(text, 2))
            terminal.type("\x04")
            code = terminal.left()
        wrong += [f"refused by the server: {said}" for said in server.violations + near.violations]
    wrong += [f"exit code {code}, not 0"] if code else []
    return wrong + _screen(fault, terminal.text)


def _ready(text: str, turns: int) -> bool:
    """Whether so many turns have ended and the chat waits for a line."""
    return len(_TURN_ENDED.findall(text)) == turns and text.endswith("›")


def _screen(fault: Fault, text: str) -> list[str]:
    end = fault.end
    wrong = ["a traceback"] if "Traceback" in text else []
    if YES not in text:
        wrong.append(f"no answer to the next question:\n{text}")
    errors = [line for line in text.splitlines() if line.startswith("✗ ")]
    if isinstance(end, Answered):
        wrong += [f"the screen has {line!r}" for line in errors]
        if end.text and end.text not in text:
            wrong.append(f"no answer:\n{text}")
        if end.warning and text.count(end.warning) != 1:
            wrong.append(f"no warning:\n{text}")
    elif len(errors) != 1 or end.words not in errors[0]:
        wrong.append(f"errors on the screen: {errors}")
    return wrong


def resumed(fault: Fault, way: Way, handle: str, run: Run, form: Form) -> list[str]:
    """Go on with the conversation, asking the model `handle` behind a strict server."""
    with ModelServer([turn(RESUMED, thinking="Where were we?")]) as server:
        done = run("-p", "-c", "-m", handle, RESUME, env=way.environment(server.url))
        wrong = [f"resumed with {handle}: refused: {said}" for said in server.violations]
        requests = server.requests
    if (done.code, done.out, done.err) != (0, f"{RESUMED}\n", ""):
        wrong.append(f"resumed with {handle}: {done}")
    return wrong + conversation_wrong(fault, handle, requests, form)


def conversation_wrong(fault: Fault, handle: str, requests: list[Request], form: Form) -> list[str]:
    """What a request that resumes the conversation lacks or has too much."""
    wrong: list[str] = []
    if len(requests) != 1:
        return [f"resumed with {handle}: {len(requests)} requests"]
    sent = requests[0].body.get("messages") or requests[0].body["input"]
    if (PROMPT in texts(sent)) != fault.kept:
        wrong.append(f"resumed with {handle}: the first words are {'lost' if fault.kept else 'kept'}")
    if form == "chat" and (STILL not in texts(sent) or YES not in texts(sent)):
        wrong.append(f"resumed with {handle}: the later words are lost")
    if (found := _results(sent)) != fault.results:
        wrong.append(f"resumed with {handle}: {found} tool results, not {fault.results}")
    return wrong


def _results(messages: list[dict[str, Any]]) -> int:
    """Tool results in a request of any dialect."""
    found = 0
    for message in messages:
        found += message.get("role") == "tool" or message.get("type") == "function_call_output"
        content = message.get("content")
        if isinstance(content, list):
            found += sum(block.get("type") == "tool_result" for block in content)
    return found
