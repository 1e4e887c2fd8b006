"""How mldyno gets to a host that has none: an environment on top of the host's interpreter, by uv or pip."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mldyno import __version__
from mldyno.fleet import boot
from mldyno.fleet.wheel import LOADER, boot_line

# A tool `uv` that makes an environment in which `python` says its words instead of starting.
UV = f"""#!/bin/sh
echo "$@" >> $LOG
case $1 in
venv) for last; do :; done; mkdir -p $last/bin; ln -s {sys.executable} $last/bin/real
  printf '#!/bin/sh\\ncase "$2" in *sysconfig*) mkdir -p %s; echo %s;; *) echo started "$3" "$4";; esac\\n' \
    $last/lib $last/lib > $last/bin/python; chmod +x $last/bin/python;;
pip) [ -z "$FAIL" ] || {{ echo 'error: no network' >&2; exit 1; }};;
esac
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with uv, whose interpreter has no mldyno of the wanted version."""
    (tmp_path / "uv").write_text(UV)
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    return tmp_path


WHEEL = b"a wheel"
DIGEST = hashlib.sha256(WHEEL).hexdigest()


def booted(sent: bytes, version: str = "99.0") -> tuple[list[str], str]:
    """What an interpreter says that gets `boot` for that version, and then this."""
    text = Path(boot.__file__).read_text(encoding="utf-8")
    first = json.dumps(f"{text}\nmain({version!r}, {DIGEST!r})\n").encode() + b"\n"
    done = subprocess.run([sys.executable, "-c", LOADER], input=first + sent, capture_output=True, check=False)
    return done.stdout.decode().splitlines(), done.stderr.decode()


def test_a_host_without_mldyno_asks_for_it_and_keeps_it(host: Path) -> None:
    sent = b"\n\n" + base64.b64encode(WHEEL) + b"\n"
    # The end of input comes after the wheel: a host is to notice that, so the beats go on for a while.
    lines, _ = _with_beats(sent)
    assert lines == ['{"is":"wants_wheel"}', "started fleet remote"]
    words = (host / "log").read_text()
    assert f"--python {sys.executable}" in words
    assert "mldyno-99.0-py3-none-any.whl" in words
    assert _with_beats(b"")[0] == ["started fleet remote"]
    (place,) = (host / "cache" / "mldyno").iterdir()
    assert place.name.startswith(f"host-{DIGEST[:16]}-")


def _with_beats(sent: bytes) -> tuple[list[str], str]:
    """The same, with an input that stays open."""
    text = Path(boot.__file__).read_text(encoding="utf-8")
    first = json.dumps(f"{text}\nmain('99.0', {DIGEST!r})\n").encode() + b"\n"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", LOADER], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(first + sent)
        process.stdin.flush()
        return process.stdout.read().decode().splitlines(), process.stderr.read().decode()


def test_the_environment_sees_what_is_installed_in_the_one_below_it(host: Path) -> None:
    if sys.prefix == sys.base_prefix:
        pytest.fail("the tests run in an environment, as `make setup` makes it")
    _with_beats(base64.b64encode(WHEEL) + b"\n")
    (below,) = (host / "cache").rglob("below.pth")
    assert any(path in below.read_text().splitlines() for path in sys.path if path.endswith("site-packages"))


def test_a_host_on_which_it_can_t_be_installed_says_why_and_keeps_nothing(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL", "1")
    lines, _ = _with_beats(base64.b64encode(WHEEL) + b"\n")
    end = json.loads(lines[-1])
    assert (end["is"], end["status"]) == ("end", "refused")
    assert end["reason"] == "mldyno can't be brought to this host: uv: error: no network"
    assert [*(host / "cache" / "mldyno").iterdir()] == []


def test_a_wheel_that_was_damaged_on_the_way_is_not_installed(host: Path) -> None:
    lines, _ = _with_beats(base64.b64encode(b"another") + b"\n")
    assert "damaged" in json.loads(lines[-1])["reason"]
    assert not (host / "log").exists()


def test_a_host_whose_line_is_cut_while_it_waits_ends(host: Path) -> None:
    lines, _ = booted(b"")
    assert "the connection ended" in json.loads(lines[-1])["reason"]


def test_an_interpreter_that_has_this_version_is_taken_as_it_is(host: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LOADER], input=boot_line(), capture_output=True, check=False)
    hello = json.loads(done.stdout.splitlines()[0])
    assert (hello["is"], hello["mldyno"]) == ("hello", __version__)


def test_an_old_interpreter_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch, capfd: object) -> None:
    monkeypatch.setattr(boot, "OLDEST", (99, 0))
    with pytest.raises(SystemExit):
        boot.main(__version__, DIGEST)
    said = json.loads(capfd.readouterr().out)  # type: ignore[attr-defined]
    assert "name one from 99.0 on with python" in said["reason"]


def test_a_module_in_the_home_folder_is_not_taken_for_one_of_python(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')")
    (tmp_path / "mldyno.py").write_text("raise SystemExit('nor this one')")
    words = [sys.executable, "-c", LOADER]
    done = subprocess.run(words, input=boot_line(), capture_output=True, check=False, cwd=tmp_path)
    assert json.loads(done.stdout.splitlines()[0])["is"] == "hello"
