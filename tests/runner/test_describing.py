"""Targets of the user's own before a plan is made: where an older version of them comes from."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from mldyno import sources
from mldyno.errors import MldynoError, UsageError
from mldyno.runner.describing import at_revision, separate_trees
from mldyno.sources import Source

GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one file, in two versions."""
    top = tmp_path / "repository"
    top.mkdir()
    (top / "model.py").write_text("A = 1")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*GIT, str(top), *words], check=True)
    (top / "model.py").write_text("A = 2")
    return top


def source_in(top: Path) -> Source:
    return replace(sources.read(str(top / "model.py")), root=str(top))


@pytest.mark.parametrize("name", ["own", "own.odd=name"])
def test_no_program_that_the_repository_names_is_run(name: str, repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 $* >> {ran}\ncat\n")
    program.chmod(0o755)
    hooks = repository / ".git" / "hooks"
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        (hooks / hook).write_text(program.read_text())
        (hooks / hook).chmod(0o755)
    (repository / ".gitattributes").write_text("*.py filter=own\n*.txt filter=own.odd=name\n")
    (repository / "data.txt").write_text("data")
    git = [*GIT, str(repository)]
    subprocess.run([*git, "-c", "core.hooksPath=/dev/null", "add", "."], check=True)
    subprocess.run([*git, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "second"], check=True)
    with (repository / ".git" / "config").open("a") as config:
        config.write(f'[core]\nfsmonitor = {program}\n[filter "{name}"]\nsmudge = {program} smudge\nrequired = true\n')
    subprocess.run([*git, "status"], check=False, capture_output=True)
    assert "program" in ran.read_text()  # the repository is one that would run it
    ran.unlink()
    older = at_revision(source_in(repository), "HEAD")
    assert Path(older.place).read_text() == "A = 2"
    assert not ran.exists(), ran.read_text()


def test_a_filter_of_the_users_own_configuration_is_left_to_work(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / ".gitattributes").write_text("*.py filter=mine\n")
    for words in (["add", "."], ["commit", "-qm", "second"]):
        subprocess.run([*GIT, str(repository), *words], check=True)
    (tmp_path / "global").write_text('[filter "mine"]\nsmudge = sed s/A/B/\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "global"))
    assert Path(at_revision(source_in(repository), "HEAD").place).read_text() == "B = 2"


def test_objects_that_are_missing_are_not_fetched(repository: Path, tmp_path: Path) -> None:
    """A clone may be partial, and its configuration name the program that fetches the rest."""
    ran, program = tmp_path / "ran", tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 >> {ran}\n")
    program.chmod(0o755)
    git = [*GIT, str(repository)]
    blob = subprocess.run(
        [*git, "rev-parse", "HEAD:model.py"], check=True, capture_output=True, text=True
    ).stdout.strip()
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with (repository / ".git" / "config").open("a") as config:
        config.write(f'[remote "o"]\nurl = ext::{program}\npromisor = true\n[protocol "ext"]\nallow = always\n')
        config.write("[core]\nrepositoryformatversion = 1\n[extensions]\npartialClone = o\n")
    subprocess.run([*git, "cat-file", "-p", blob], check=False, capture_output=True)
    assert ran.exists()  # the repository is one that would run it
    ran.unlink()
    with pytest.raises(MldynoError, match="git worktree"):
        at_revision(source_in(repository), "HEAD")
    assert not ran.exists()


@pytest.mark.parametrize("count", ["many", "", "-1", "9" * 5000])
def test_settings_of_git_in_the_environment_that_make_no_sense_are_left_out(
    count: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", count)
    assert Path(at_revision(source_in(repository), "HEAD").place).read_text() == "A = 1"


def test_a_hook_of_git_may_call_it(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([*GIT, str(tmp_path), "init", "-q", "another"], check=True)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "another" / ".git" / "index"))
    assert Path(at_revision(source_in(repository), "HEAD").place).read_text() == "A = 1"


def test_what_lies_in_no_repository_has_no_revisions(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("")
    with pytest.raises(UsageError, match=r"model\.py is not in a git repository; name an older file"):
        at_revision(sources.read(str(tmp_path / "model.py")), "HEAD")


def test_a_file_that_is_a_link_is_found_in_the_older_tree(repository: Path) -> None:
    (repository / "bench").mkdir()
    (repository / "bench" / "link.py").symlink_to("../model.py")
    for words in (["add", "."], ["commit", "-qm", "second"]):
        subprocess.run([*GIT, str(repository), *words], check=True)
    source = replace(sources.read(str(repository / "bench" / "link.py")), root=str(repository))
    older = at_revision(source, "HEAD~0")
    assert (Path(older.place).name, Path(older.place).read_text()) == ("link.py", "A = 2")
    assert older.other == str(repository)


def test_two_copies_of_a_folder_are_told_by_the_end_that_their_paths_share(tmp_path: Path) -> None:
    for place in ("new/bench/gpt.py", "old/bench/gpt.py", "new/gpt.py", "old/gpt.py", "old/bench/other.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("")

    def trees(mine: str, theirs: str) -> tuple[str, str]:
        now, older = separate_trees(*(sources.read(str(tmp_path / place)) for place in (mine, theirs)))
        assert (now.root, now.other) == (older.other, older.root)
        return now.root, older.root

    assert trees("new/bench/gpt.py", "old/bench/gpt.py") == (str(tmp_path / "new"), str(tmp_path / "old"))
    for mine, theirs in (("new/gpt.py", "old/gpt.py"), ("new/bench/gpt.py", "old/bench/other.py"),
                         ("new/gpt.py", "new/gpt.py")):  # fmt: skip
        assert trees(mine, theirs) == ("", "")
