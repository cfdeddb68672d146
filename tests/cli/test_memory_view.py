"""`letta memory view`: where the page goes, who may read it, and which browser is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.harness import Letta


@pytest.fixture
def agent(letta: Letta) -> str:
    """An agent with a block."""
    made = letta("agents", "create", "--name", "Ada", "--block", "human=Likes <tea>.")
    assert made.code == 0
    return made.out.strip()


def test_the_page_is_written_for_its_owner_alone_and_its_place_is_printed(letta: Letta, agent: str) -> None:
    done = letta("memory", "view", "--no-open")
    assert (done.code, done.err) == (0, "")
    file = Path(done.out.strip())
    assert file.stat().st_mode & 0o777 == 0o600
    html = file.read_text("utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert "Likes &lt;tea&gt;." in html
    assert letta("memory", "view", "--no-open").out == done.out
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_without_a_desktop_no_browser_is_asked_and_the_page_is_named(letta: Letta, agent: str) -> None:
    done = letta("memory", "view")
    assert done.code == 0
    assert Path(done.out.strip()).is_file()
    assert "no browser" in done.err


def test_the_browser_that_the_person_chose_gets_the_page(letta: Letta, agent: str, tmp_path: Path) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > "{seen}"\n')
    browser.chmod(0o755)
    done = letta("memory", "view", env={"BROWSER": str(browser)})
    assert (done.code, done.err) == (0, "")
    assert seen.read_text() == Path(done.out.strip()).as_uri()


def test_out_names_a_file_or_standard_output_and_opens_nothing(
    letta: Letta, agent: str, tmp_path: Path
) -> None:
    file = tmp_path / "my page.html"
    done = letta("memory", "view", "--out", str(file), env={"BROWSER": "/bin/false"})
    assert (done.code, done.err) == (0, "")
    assert file.stat().st_mode & 0o777 == 0o600
    printed = letta("memory", "view", "--out", "-", "--agent", agent)
    assert printed.code == 0
    assert printed.out == file.read_text("utf-8")


@pytest.mark.parametrize("out", [".", "/dev/null", "missing/page.html"])
def test_out_that_is_no_file_is_refused(letta: Letta, agent: str, out: str) -> None:
    done = letta("memory", "view", "--out", out)
    assert done.code == 2
    assert "--out" in done.err
    assert "Traceback" not in done.err
    assert Path("/dev/null").is_char_device()


def test_drafts_are_named_and_a_model_gives_the_window(letta: Letta) -> None:
    letta("agents", "create", "--name", "Bo", "--model", "anthropic/claude-sonnet-5-5", "--block", "human=A.")
    folder = Path(letta("memory", "path").out.strip())
    (folder / "system" / "human.md").write_text("a draft that is not memory")
    html = letta("memory", "view", "--out", "-").out
    assert "a draft that is not memory" not in html
    assert "Not shown: 1 uncommitted" in html
    assert "window of 1,000,000" in html
