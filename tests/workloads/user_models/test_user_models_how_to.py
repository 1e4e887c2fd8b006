"""The how-to on models of your own is run as it is written, with few steps."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import steady

from mldyno.cli import main

PAGE = (Path(__file__).parents[3] / "docs/how-to/measure-your-own-model.md").read_text()
FILES = dict(re.findall(r"<!-- file: (\S+) -->\s*```python\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = {
    command: "change" in when
    for when, block in re.findall(r"<!-- run: (.*?) -->\s*```console\n(.*?)```", PAGE, re.DOTALL)
    for command in re.findall(r"^\$ mldyno (.*)$", block, re.MULTILINE)
}
FEW = ["--steps", "2", "--repeats", "1", "--budget", "0.2s", "--threads", "1", "-q"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's files, under git."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *words], check=True)
    return tmp_path


def test_the_page_has_files_and_commands() -> None:
    assert set(FILES) == {"my_model.py", "two_inputs.py"}
    assert len(COMMANDS) == 5


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_does_what_it_says(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if COMMANDS[command]:
        (folder / "my_model.py").write_text(FILES["my_model.py"].replace("512", "256"))

    def mldyno(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(words)
        return int(end.value.code or 0), *capsys.readouterr()

    code, out, err = steady(mldyno, *shlex.split(command), *FEW)
    assert code == 0, err
    assert "@" in out
    assert ("your change" in out) == COMMANDS[command]


def test_a_model_of_a_notebook_is_checked_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"<!-- python -->\s*```python\n(.*?)```", PAGE, re.DOTALL)
    from mldyno import plugins
    from mldyno.runner import in_notebook

    monkeypatch.setattr(type(plugins.framework("torch")), "compiles", False)  # tests of notebooks have it compiled
    monkeypatch.setattr(in_notebook, "PRECISIONS", {"cpu": ("fp32", "bf16")})
    monkeypatch.setattr(in_notebook, "MEASURED_S", 0.05)
    names: dict[str, Callable[..., object]] = {}
    *lines, last = code.strip().splitlines()
    exec("\n".join([*lines, f"checked = {last[:-1]}, modes=['infer'], devices=['cpu'])"]), names)
    text = str(names["checked"])
    assert "bf16" in text
    assert "largest batch in inference on cpu: " in text
