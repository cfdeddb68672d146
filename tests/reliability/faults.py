"""The list of faults: how each is scripted, and how a turn that meets it has to end.

The one list behind `scripts/fault_matrix.py`, the tests beside this file and the table in
docs/reliability.md. A fault is a `Fault`; its `turns` are what the scripted model does with the person's
first words (see tests/model_server/README.md), the same in every dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.model_server import call, turn
from tests.reliability.bodies import CAPTIVE_PAGE, GATEWAY_PAGE, OVERFLOWS

PROMPT = "Please do the task."
ANSWER = "The task is done."
SEEN = "These words were seen before it broke, größer than before"
ALL_ATTEMPTS = 6
SILENT_ATTEMPTS = 3
"""Each of them costs the person a whole idle timeout."""

Place = Literal["server", "nothing listens", "unknown name", "no TLS", "untrusted certificate"]


@dataclass(frozen=True, slots=True)
class Answered:
    """The turn completes and its answer is `text`; `warning`: what a line on stderr also says."""

    text: str = ANSWER
    warning: str = ""

    def __str__(self) -> str:
        return "answered" + (", with a warning" if self.warning else "")


@dataclass(frozen=True, slots=True)
class Told:
    """One line of error that says `words`, and the exit code `code` of `letta -p`."""

    words: str
    code: int = 1

    def __str__(self) -> str:
        return f"told, exit {self.code}"


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the matrix. `requests`: how many the server gets for the first words (None: any number);
    `gap`: the least seconds between the first two; `kept`: whether the person's words are in the
    conversation afterwards; `results`: how many tool results are;
    `idle`: the idle timeout in seconds, where it is not the usual one."""

    name: str
    turns: tuple[Mapping[str, Any], ...]
    end: Answered | Told
    requests: int | None = None
    gap: float = 0.0
    kept: bool = True
    results: int = 0
    place: Place = "server"
    idle: float | None = None


def _broken(fault: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A turn with thoughts, words and a call, that meets `fault`."""
    return turn(SEEN, call("LS", path="a" * 60), thinking="I think about it, and more.", fault=fault, **more)


def _passes(name: str, fault: Mapping[str, Any], times: int = 2, gap: float = 0.0) -> Fault:
    turns = (_broken(fault, times=times), turn(ANSWER))
    return Fault(name, turns, Answered(), times + 1, gap)


def _stays(name: str, fault: Mapping[str, Any], words: str, attempts: int = ALL_ATTEMPTS) -> Fault:
    return Fault(name, (_broken(fault, repeat=True),), Told(words, 75), attempts)


def _final(name: str, fault: Mapping[str, Any], words: str, code: int = 1, kept: bool = True) -> Fault:
    """One that no second request can help."""
    return Fault(name, (_broken(fault),), Told(words, code), 1, kept=kept)


def _later(name: str, fault: Mapping[str, Any], end: Told, requests: int) -> Fault:
    """The fault meets the second request; what the first one led to is kept."""
    first = turn("First I look.", call("LS", path="."), thinking="Look first.")
    return Fault(f"{name}, after a step", (first, _broken(fault, repeat=True)), end, requests, results=1)


def _called(name: str, *calls: Mapping[str, Any], results: int = 1, **more: Any) -> Fault:
    """An odd call, whose result tells the model, which then answers."""
    return Fault(name, (turn("", *calls, **more), turn(ANSWER)), Answered(), 2, results=results)


def _raw(text: str, name: str = "Read") -> dict[str, Any]:
    return {"name": name, "raw": text}


def _statuses() -> list[Fault]:
    faults = [
        _final("400", {"status": 400, "message": "tools.3: bad schema"}, "tools.3: bad schema", kept=False),
        _final("401", {"status": 401}, "401"),
        _final("403", {"status": 403}, "403"),
        _final("404", {"status": 404, "message": "no such model"}, "no such model"),
        _final("413", {"status": 413}, "413", kept=False),
        _final("422", {"status": 422, "message": "odd field"}, "odd field", kept=False),
        _final(
            "307 to another address", {"status": 307, "headers": {"location": "http://h.invalid/"}}, "307"
        ),
    ]
    for status in (408, 409, 429, 500, 502, 504, 529):
        faults.append(_passes(f"{status} for a moment", {"status": status}))
        faults.append(_stays(f"{status} for good", {"status": status}, str(status)))
    page = {"status": 503, "body": GATEWAY_PAGE}
    faults += [
        _passes("503 with an HTML page for a moment", page),
        _stays("503 with an HTML page for good", page, "503"),
    ]
    return faults


def _retry_after() -> list[Fault]:
    def asks(how: str, headers: Mapping[str, Any], gap: float, status: int = 429) -> Fault:
        return _passes(f"{status}, retry-after {how}", {"status": status, "headers": headers}, 1, gap)

    hour = {"status": 429, "headers": {"retry-after": "3600"}}
    empty = {"error": {"message": "No credit", "type": "insufficient_quota", "code": "insufficient_quota"}}
    return [
        asks("in seconds", {"retry-after": "1"}, 1.0),
        asks("as an HTTP date", {"retry-after": {"date_in": 2}}, 1.0),
        asks("in milliseconds", {"retry-after-ms": "300", "retry-after": "9"}, 0.3),
        asks("that means nothing", {"retry-after": "soon"}, 0.0),
        asks("in the past", {"retry-after": {"date_in": -100}}, 0.0),
        asks("in seconds", {"retry-after": "1"}, 1.0, 529),
        _final("429, retry-after of an hour", hour, "3600 seconds", 75),
        _final("429, no credit left", {"status": 429, "body": empty}, "No credit"),
    ]


def _network() -> list[Fault]:
    def never(place: Place, words: str) -> Fault:
        return Fault(place, (), Told(words, 75), place=place)

    babble = {"raw": "\x16\x03\x01 nonsense\r\n\r\n"}
    return [
        never("nothing listens", "connection refused"),
        never("unknown name", "cannot be resolved"),
        never("no TLS", "TLS failed"),
        Fault(
            "untrusted certificate",
            (),
            Told("certificate is not trusted"),
            place="untrusted certificate",
        ),
        _passes("reset before the answer, for a moment", {"drop": "before", "how": "reset"}),
        _stays("reset before the answer, for good", {"drop": "before", "how": "reset"}, "cannot reach"),
        _passes("closed before the answer", {"drop": "before", "how": "close"}),
        _stays("no HTTP at all", babble, "cannot reach"),
    ]


def _silences() -> list[Fault]:
    before, within = {"stall": "forever"}, {"stall": "forever", "after": 6}
    words = "silent for too long"
    # The first ones go on with an answer, which on a busy machine takes its time.
    return [
        replace(_passes("silence before the answer, for a moment", before, 1), idle=1.5),
        replace(_passes("silence in the stream, for a moment", within, 1), idle=1.5),
        replace(_passes("nothing but comments in the stream", {"drip": 0.05, "after": 4}, 1), idle=1.0),
        replace(_stays("silence before the answer, for good", before, words, SILENT_ATTEMPTS), idle=0.25),
        replace(_stays("silence in the stream, for good", within, words, SILENT_ATTEMPTS), idle=0.25),
    ]


def _streams() -> list[Fault]:
    faults: list[Fault] = []
    where = {
        "after_headers": "at once",
        "mid": "in the text",
        "in_tool": "in a call",
        "in_thinking": "in a thought",
    }
    hows = {"reset": "reset", "close": "closed in mid-message", "eof": "ended early"}
    for drop, place in where.items():
        for how, words in hows.items():
            turns = _broken({"drop": drop, "how": how}, times=2, chunk=6)
            faults.append(Fault(f"stream {words} {place}", (turns, turn(ANSWER)), Answered(), 3))
    return [
        *faults,
        _stays("stream ended early in the text, every time", {"drop": "mid", "how": "eof"}, "ended before"),
        _stays("stream reset in a call, every time", {"drop": "in_tool", "how": "reset"}, "broke off"),
        _passes("an event that is no JSON", {"garbage": True, "after": 3}),
        _stays("an event that is no JSON, every time", {"garbage": True, "after": 3}, "broke off"),
        _passes("an answer in Latin-1", {"wrong_encoding": True}),
        _stays("an answer in Latin-1, every time", {"wrong_encoding": True}, "broke off"),
        _passes("an error event in the stream", {"event_error": "overloaded_error", "after": 3}),
        _stays("an error event, every time", {"event_error": "overloaded_error", "after": 3}, "Overloaded"),
        _stays(
            "a failed response, every time",
            {"event_error": "api_error", "form": "failed", "after": 3, "message": "Sorry"},
            "Sorry",
        ),
        _passes("status 200 with an HTML page for a moment", {"status": 200, "body": CAPTIVE_PAGE}),
        _stays("status 200 with an HTML page for good", {"status": 200, "body": CAPTIVE_PAGE}, "HTML page"),
        _passes("status 200 with JSON that is no answer", {"status": 200, "body": {"detail": "welcome"}}),
    ]


def _calls() -> list[Fault]:
    look = call("LS", path=".")
    both = (call("LS", path="."), call("Glob", pattern="*"))
    return [
        _called("arguments cut in the middle", _raw('{"file_path": "a.py", "limit": 1')),
        _called("arguments that are an array", _raw("[1, 2]")),
        _called("arguments that are null", _raw("null")),
        _called("arguments that are a string", _raw('"a.py"')),
        _called("arguments with a raw line break", _raw('{"path": "a\nb"}', "LS")),
        _called("arguments of 200 kB of junk", _raw("x{" * 100_000), chunk=8192),
        _called("arguments with lone surrogates", _raw('{"path": "\\ud800"}', "LS")),
        _called("no arguments at all", _raw("")),
        _called("arguments against the schema", call("Read", file_path=7, limit="many")),
        _called("arguments without what is required", call("Read", limit=3)),
        _called("arguments nobody knows", call("LS", path=".", colour="red")),
        _called("an unknown tool", call("Teleport", where="home")),
        _called("a tool without a name", call("", path=".")),
        _called("a tool's name of 300 characters", call("Teleport " * 33)),
        _called("duplicate call ids", *both, results=2, fault={"call_ids": "duplicate"}),
        _called("missing call ids", *both, results=2, fault={"call_ids": "missing"}),
        Fault(
            "an id that an earlier call had",
            (
                turn("", call("LS", "call_1", path=".")),
                turn("", call("LS", "call_1", path=".")),
                turn(ANSWER),
            ),
            Answered(),
            3,
            results=2,
        ),
        _called("empty text and a call", look),
        Fault("blank text and a call", (turn(" \n", look), turn(ANSWER)), Answered(), 2, results=1),
    ]


def _answers() -> list[Fault]:
    thought = {"thinking": "Only a thought."}
    unsigned = {"no_signature": True}
    look = call("LS", path=".")
    long = turn("So far the", stop="max_tokens")
    cut = turn("", call("LS", path="."), _raw('{"file_path": "a', "Read"), stop="max_tokens")
    no = turn("I will not do that.", stop="refusal")
    return [
        Fault("an empty answer, once", (turn(), turn(ANSWER)), Answered(), 2),
        Fault("empty answers", (turn(), turn()), Told("answered nothing"), 2),
        Fault("empty answers, after a step", (turn("", look), turn(), turn()), Told("nothing"), 3, results=1),
        Fault("a blank answer, once", (turn(" \n "), turn(ANSWER)), Answered(), 2),
        Fault("reasoning only, once", (thought, turn(ANSWER)), Answered(), 2),
        Fault("reasoning only", (thought, thought), Told("answered nothing"), 2),
        Fault("output limit in the text", (long,), Answered("So far the", "output limit"), 1),
        Fault(
            "output limit in a call",
            (cut, turn(ANSWER)),
            Answered(ANSWER, "model's output limit"),
            2,
            results=2,
        ),
        Fault("output limit in a thought", ({**thought, "stop": "max_tokens"},), Told("output limit"), 1),
        Fault("a refusal", (no,), Told("refused"), 1, kept=False),
        Fault("a refusal, after a step", (turn("", look), no), Told("refused"), 2, results=1),
        Fault(
            "a thought without signature",
            (turn("Hm.", look, thinking="Why?", fault=unsigned), turn(ANSWER)),
            Answered(),
            2,
            results=1,
        ),
        Fault(
            "a thought of another model",
            (turn("Hm.", look, thinking="Why?"), turn(ANSWER, thinking="Ah.")),
            Answered(),
            2,
            results=1,
        ),
    ]


def _overflows() -> list[Fault]:
    faults = [
        _final(f"overflow: {name}", {"status": status, "body": body}, words, kept=False)
        for name, status, body, words in OVERFLOWS
    ]
    event = {"event_error": "context_length_exceeded", "message": "Your input exceeds the context window"}
    return [
        *faults,
        _final("overflow: as an event", {**event, "after": 2}, "exceeds the context window", kept=False),
    ]


def _after_steps() -> list[Fault]:
    overflow = {"status": 400, "body": OVERFLOWS[0][2]}
    return [
        _later("400", {"status": 400, "message": "odd request"}, Told("odd request"), 2),
        _later("401", {"status": 401}, Told("401"), 2),
        _later("529 for good", {"status": 529}, Told("529", 75), 1 + ALL_ATTEMPTS),
        _later(
            "stream cut for good", {"drop": "mid", "how": "close"}, Told("broke off", 75), 1 + ALL_ATTEMPTS
        ),
        _later("overflow", overflow, Told("prompt is too long"), 2),
    ]


FAULTS: tuple[Fault, ...] = (
    *_statuses(),
    *_retry_after(),
    *_network(),
    *_silences(),
    *_streams(),
    *_calls(),
    *_answers(),
    *_overflows(),
    *_after_steps(),
)
