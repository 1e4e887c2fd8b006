"""The command line as a user types it, in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mldyno import cli

Mldyno = Callable[..., tuple[int, str, str]]
MOST_TRIES = 5  # on a busy machine steps may never settle, which is another test's affair


@pytest.fixture
def mldyno(capsys: pytest.CaptureFixture[str]) -> Mldyno:
    """Runs a command line in this process: exit code, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main(words)
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return call


def steady(mldyno: Mldyno, *words: str, wanted: str = "") -> tuple[int, str, str]:
    """A command, once more where the steps did not settle, or what says what is wanted had no core to run on."""
    for _ in range(MOST_TRIES):
        code, out, err = mldyno(*words)
        if "unsteady" not in out and wanted in out:
            break
    return code, out, err
