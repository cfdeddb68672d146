"""What a request is counted as, before it is sent and after earlier ones were answered."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import pytest

from letta_code.agent.counting import PICTURE, Counter, message_tokens, picture_tokens
from letta_code.core.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, ToolSpec, Usage
from letta_code.models.base import Completed, ModelInfo, ModelRequest
from letta_code.models.catalog import model_info
from tests.agent.support import Bench, Scripted

CLAUDE = model_info("anthropic", "claude-sonnet-5-5")
GPT = model_info("openai", "gpt-6.2-sol")
WORDS = "The quick brown fox jumps over the lazy dog and runs away into the dark wood. " * 20


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def answer(text: str, *thinking: Thinking) -> Message:
    return Message("assistant", (*thinking, Text(text)), "agent")


def request(*messages: Message, system: str = "You help.", tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest((system,), messages, tools, "conv-1")


def counter(info: ModelInfo = CLAUDE) -> Counter:
    made = Counter()
    made.use(info)
    return made


def test_the_last_usage_anchors_what_is_shared_and_only_the_rest_is_estimated() -> None:
    counts = counter()
    first = request(user(WORDS))
    estimated = counts.request(first)
    assert not counter().calibrated
    counts.learn(first, Usage(200, 50, 100, 40))
    assert counts.calibrated
    assert counts.request(first) == 340
    assert counts.ratio == pytest.approx((340 + 1000) / (estimated + 1000))
    more = request(*first.messages, answer("Yes. " * 40), user("go on"))
    # The answer is counted as what it took; what is new as the estimate.
    assert 340 + 50 < counts.request(more) < 340 + 50 + 20
    counts.learn(first, Usage(340, 0))  # a server that does not say what its answers take
    assert 340 + 40 < counts.request(more) < 340 + 140


def test_the_ratio_follows_the_texts_that_were_new_and_stays_within_bounds() -> None:
    counts = counter()
    messages: tuple[Message, ...] = ()
    taken = 0
    for number in range(30):
        messages = (*messages, user(f"{number} {WORDS}"), answer("ok"))
        taken += round(1.4 * sum(message_tokens(message) for message in messages[-2:]))
        counts.learn(request(*messages), Usage(taken, 2))
    assert counts.ratio == pytest.approx(1.4, abs=0.05)
    exact = taken + 1.4 * message_tokens(user(WORDS))
    assert counts.request(request(*messages, user(WORDS))) == pytest.approx(exact, rel=0.01)
    for number in range(30):
        messages = (*messages, user(f"{number} {WORDS}"))
        taken += 40_000
        counts.learn(request(*messages), Usage(taken, 2))
    assert 1.6 < counts.ratio < 2.0  # what cannot be true counts as twice the estimate at most


def test_what_is_dropped_is_taken_off_and_a_new_beginning_is_counted_afresh() -> None:
    counts = counter()
    long = tuple(user(f"{number} {WORDS}") for number in range(10))
    counts.learn(request(*long), Usage(4_000, 2))
    ratio = counts.ratio
    shorter = counts.request(request(*long[:-1]))
    assert shorter == round(4_000 - ratio * message_tokens(long[-1]))
    compacted = request(user("A summary."), long[-1])
    assert counts.request(compacted) == round(ratio * counter().request(compacted))
    grown = counts.request(request(*long, system="You help." + WORDS))
    assert grown > 4_000 + ratio * 300
    tool = ToolSpec("Look", WORDS, {"type": "object"})
    assert counts.request(request(*long, tools=(tool,))) == pytest.approx(
        4_000 + counts.spec_tokens(tool), abs=1
    )


def test_a_usage_that_cannot_be_true_is_left_aside() -> None:
    counts = counter()
    first = request(user(WORDS * 10))
    estimated = counts.request(first)
    for usage in (Usage(), Usage(3, 900), Usage(int(estimated * 0.3), 10)):
        counts.learn(first, usage)
        assert counts.request(first) == estimated
    counts.learn(first, Usage(estimated, 10))
    second = request(*first.messages, answer("ok"), user("more"))
    counts.learn(second, Usage(40, 5))  # a server that counts only what its cache did not hold
    assert counts.request(second) > estimated


def test_each_model_has_its_own_correction() -> None:
    counts = counter()
    first = request(user(WORDS))
    counts.learn(first, Usage(700, 5))
    counts.use(GPT)
    assert not counts.calibrated
    assert counts.ratio == 1.0
    counts.use(CLAUDE)
    assert counts.request(first) == 700


def test_thinking_is_counted_only_where_it_is_sent_back() -> None:
    own = Thinking(WORDS, "anthropic", CLAUDE.handle, {"block": {}})
    cut = Thinking(WORDS, "anthropic", CLAUDE.handle, None)
    foreign = Thinking(WORDS, "openai-responses", GPT.handle, {"item": {}})
    assert message_tokens(answer("x", own), CLAUDE) > 300
    for thinking in (cut, foreign):
        assert message_tokens(answer("x", thinking), CLAUDE) < 10
    counts = counter()
    first = request(user("hi"))
    counts.learn(first, Usage(30, 900))
    assert counts.request(request(user("hi"), answer("x", own))) == 930
    assert counts.request(request(user("hi"), answer("x", cut))) < 50
    assert counts.request(request(user("hi"), answer("x"))) < 50  # the thinking was never shown


def picture(kind: str, width: int, height: int) -> Image:
    wide, high = (struct.pack("<I", side - 1)[:3] for side in (width, height))
    raw = {
        "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height),
        "gif": b"GIF89a" + struct.pack("<HH", width, height),
        "jpeg": b"\xff\xd8\xff\xe0\0\x10%b\xff\xc0\0\x11\x08" % bytes(14) + struct.pack(">HH", height, width),
        "webp": b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + wide + high,
    }[kind]
    return Image(f"image/{kind}", base64.b64encode(raw + bytes(64)).decode())


def test_pictures_cost_what_their_size_says() -> None:
    for kind in ("png", "gif", "jpeg", "webp"):
        small = picture(kind, 750, 100)
        assert picture_tokens(small, CLAUDE) == 100, kind
        assert picture_tokens(small, GPT) == 85 + 170 * 2, kind
        assert picture_tokens(picture(kind, 6000, 6000), CLAUDE) == PICTURE
        assert picture_tokens(picture(kind, 6000, 6000), GPT) == 85 + 170 * 4
    for data in ("", "!!!!", "iVBORw0K", base64.b64encode(b"\xff\xd8\xff").decode(), "AAAA" * 9):
        assert picture_tokens(Image("image/png", data), CLAUDE) == PICTURE
    shown = Message("tool", (ToolResult("a", (Text("x"), picture("png", 750, 100))),), "harness")
    assert 100 < message_tokens(shown, CLAUDE) < 120


async def test_a_resumed_conversation_goes_on_from_the_last_usage(tmp_path: Path) -> None:
    bench = Bench.make(tmp_path)
    call = ToolCall("a", "Look", {})
    told = Completed(Message("assistant", (Text("ok"), call), "agent"), Usage(2_000, 30), "tool_use")
    last = Completed(answer("done"), Usage(3_000, 40, 500), "end_turn")
    session = bench.session(Scripted([told, last]))
    await bench.turn(session, "hello")
    await session.close()
    model = Scripted([])
    again = bench.session(model, session.conversation.id)
    sent = session.conversation.messages
    system = again.prompts.prepare(again.conversation.last_prompt, True).system
    following = ModelRequest((system,), (*again.conversation.messages, user("go on")), (), "x")
    assert len(sent) == 4
    assert 3_540 < again.counter.request(following) < 3_560
    assert again.counter.calibrated
    await again.close()
    other = bench.session(Scripted([], handle="test/other"), session.conversation.id)
    assert other.counter.request(following) < 3_000
    await other.close()
