"""mldyno as a wheel, made from what is installed here."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import mldyno
from mldyno.fleet import boot
from mldyno.fleet import wheel as wheels


def test_the_wheel_is_mldyno_and_pip_takes_it(tmp_path: Path) -> None:
    content, digest = wheels.wheel()
    assert hashlib.sha256(content).hexdigest() == digest
    path = tmp_path / f"mldyno-{mldyno.__version__}-py3-none-any.whl"
    path.write_bytes(content)
    quiet = ["--disable-pip-version-check", "--no-deps", "--no-index", "--no-compile", "-q"]
    there = ["--target", str(tmp_path / "there")]
    subprocess.run([sys.executable, "-m", "pip", "install", *quiet, *there, str(path)], check=True)
    package = tmp_path / "there" / "mldyno"
    assert (package / "data" / "report").is_dir()
    assert (package / "fleet" / "boot.py").read_text() == Path(boot.__file__).read_text()
    code = "import sys; sys.path.insert(0, sys.argv[1]); import mldyno; print(mldyno.__file__, mldyno.__version__)"
    words = [sys.executable, "-I", "-c", code, str(tmp_path / "there")]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert said == [str(package / "__init__.py"), mldyno.__version__]


def test_the_same_files_make_the_same_wheel() -> None:
    first = wheels.wheel()
    wheels.wheel.cache_clear()
    assert wheels.wheel() == first
