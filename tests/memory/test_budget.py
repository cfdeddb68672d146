"""What memory takes of the window, and the estimate it rests on."""

from __future__ import annotations

from pathlib import Path

import pytest
import quicktok
from hypothesis import given
from hypothesis import strategies as st

from letta_code.core.tokens import estimated_tokens
from letta_code.memory.budget import measure, pressure
from letta_code.memory.edits import Create
from letta_code.memory.git.repository import MemoryRepository
from letta_code.memory.overview import LIMIT, cut_overviews
from letta_code.memory.prompt import compile_prompt
from letta_code.memory.render import BODY_LIMIT, problems_of, render_memory
from letta_code.memory.rules import PERSON
from tests.memory.conftest import AGENT, Git

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = quicktok.get_encoding("o200k_base")
TEXTS = {
    "zh": (
        "第一次启动时，程序会在用户目录下创建配置文件。测试环境使用独立的数据库，密码保存在密钥管理服务里。",
        0.25,
    ),
    "ja": (
        "最初の起動時に、設定ファイルがホームディレクトリに作成されます。毎週水曜日の午後にリリースします。",
        0.2,
    ),
    "ko": ("처음 시작할 때 홈 디렉터리에 설정 파일이 만들어집니다. 매주 수요일 오후에 배포합니다.", 0.2),
    "ru": ("Пользователь предпочитает короткие ответы. Перед коммитом нужно запускать тесты.", 0.2),
    "emoji": (
        "Done ✅ — the build 🚀 passes, the linter ⚠️ complains 😕 about 3 files 📄📄📄. 🧹 🧪 🎉 👨‍👩‍👧 🇫🇷",
        0.25,
    ),
}


def error(text: str) -> float:
    return estimated_tokens(text) / len(VOCABULARY.encode(text)) - 1


@pytest.mark.parametrize("kind", TEXTS)
def test_the_estimate_holds_for_scripts_and_emoji(kind: str) -> None:
    text, tolerance = TEXTS[kind]
    assert abs(error(text)) < tolerance


def test_the_estimate_holds_for_prose_and_code() -> None:
    prose = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "docs" / "memory-format.md"]
    code = sorted((ROOT / "letta_code" / "agent").glob("*.py"))
    errors = [abs(error(file.read_text("utf-8"))) for file in (*prose, *code)]
    assert sum(errors) / len(errors) < 0.08
    assert max(errors) < 0.25


@given(st.text())
def test_every_text_has_an_estimate(text: str) -> None:
    assert (estimated_tokens(text) > 0) == bool(text)


def test_files_in_the_prompt_are_measured_by_size(repository: MemoryRepository) -> None:
    repository.commit(Create("system/big.md", "Big.", "word " * 2000), "why", AGENT)
    repository.commit(Create("notes/huge.md", "Outside.", "word " * 9000), "why", AGENT)
    (repository.worktree / "system" / "hidden.md").write_text("---\nhidden: true\n---\n" + "word " * 9000)
    repository.commit_drafts("hide", AGENT)
    snapshot = repository.snapshot()
    budget = measure(snapshot)
    assert [file.path for file in budget.files] == ["system/big.md", "system/human.md", "system/persona.md"]
    assert budget.files[1].limit == 40
    assert budget.total == sum(file.tokens for file in budget.files)
    rendered = estimated_tokens(render_memory(snapshot))
    assert abs(budget.total - rendered) < 0.15 * rendered


def test_a_block_near_its_limit_one_over_it_and_a_full_budget_are_named(
    repository: MemoryRepository, git: Git
) -> None:
    assert pressure(measure(repository.snapshot()), 1_000, 0.1) == ()
    human = repository.worktree / "system" / "human.md"
    human.write_text(human.read_text().replace("Likes tea.\n", "x" * 36))
    repository.commit_drafts("more", AGENT)
    assert pressure(measure(repository.snapshot()), 0, 0.1) == (
        "system/human.md is near its limit: 36 of 40 characters",
    )
    human.write_text(human.read_text() + "y" * 5)
    git("commit", "--no-verify", "-qam", "over")
    over, full = pressure(measure(repository.snapshot()), 100, 0.1)
    assert over == "system/human.md is over its limit: 41 of 40 characters"
    assert full.startswith("system/ takes about ")
    assert "budget 10%" in full


def test_e24_a_two_megabyte_block_and_a_long_overview_are_cut_at_whole_lines_and_named(
    repository: MemoryRepository,
) -> None:
    line = "字母 letters " * 8 + "\n"
    lines = 2_000_000 // len(line.encode())
    repository.commit(Create("system/huge.md", "Huge.", line * lines), "why", AGENT, overrides=PERSON)
    overview = "projects/a-1/overview.md"
    repository.commit(Create(overview, "Long.", line * 500), "why", AGENT)
    snapshot = repository.snapshot()
    prompt = compile_prompt("{CORE_MEMORY}", snapshot)
    shown = [text for text in prompt.splitlines() if "letters" in text]
    assert set(shown) == {line.rstrip("\n")}
    assert "[cut here: " in prompt
    assert len(shown) * len(line) <= BODY_LIMIT
    cut = [problem.path for problem in problems_of(snapshot) if "cut" in problem.message]
    assert cut == ["system/huge.md"]
    assert any("cut in the prompt" in words for words in pressure(measure(snapshot), 200_000, 0.9))
    assert list(cut_overviews(snapshot)) == [(overview, len((line * 500).strip()))]
    assert 500 * len(line) > LIMIT
