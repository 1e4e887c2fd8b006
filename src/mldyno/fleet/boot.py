"""Finds mldyno on a host, or brings it there, and becomes its remote runner. Sent as text, so standard library only.

If the interpreter that runs this has mldyno in the wanted version, that is it. Else a folder of the user's cache holds
an environment on top of this interpreter, so that it sees the frameworks that are installed there; it is named after
the hash of mldyno's wheel. If it is missing, the wheel is asked for, and installed by uv if the host has it, or by pip.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

OLDEST = (3, 10)
INSTALL_S, SILENT_S, ALIVE_S = 900.0, 25.0, 5.0
RUN = "import sys; sys.path[:] = filter(None, sys.path); from mldyno.__main__ import main; main()"


def main(version: str, digest: str) -> None:
    """Become the remote runner of that version; `digest` is the SHA-256 of its wheel."""
    if sys.version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        end(f'{sys.executable} is Python {sys.version.split()[0]}; name one from {oldest} on with python = "..."')
    if own_version() == version:
        start(sys.executable)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    base = hashlib.sha256(f"{os.path.realpath(sys.prefix)} {sys.executable} {sys.version}".encode()).hexdigest()
    place = os.path.join(cache, "mldyno", f"host-{digest[:16]}-{base[:8]}")
    python = os.path.join(place, "bin", "python")
    if not os.path.exists(python):
        try:
            install(place, version, digest)
        except (OSError, ValueError, EOFError) as error:
            end(f"mldyno can't be brought to this host: {error}")
    start(python)


def own_version() -> str:
    """Return the version of mldyno that this interpreter has, if any."""
    try:
        import mldyno
    except ImportError:
        return ""
    return str(getattr(mldyno, "__version__", ""))


def start(python: str) -> None:
    """Become the remote runner, with the same pipes."""
    os.execv(python, [python, "-c", RUN, "fleet", "remote"])


def say(**message: str) -> None:
    """Say a message in a line."""
    os.write(1, json.dumps(message, separators=(",", ":")).encode() + b"\n")


def end(reason: str) -> None:
    """End without a remote runner, for a reason."""
    say(**{"is": "end", "status": "refused", "reason": reason})
    sys.exit(3)


def install(place: str, version: str, digest: str) -> None:
    """Make the environment: whole or not at all, however many hosts share the home."""
    say(**{"is": "wants_wheel"})
    packed = asked_for()
    if hashlib.sha256(packed).hexdigest() != digest:
        raise ValueError("its wheel was damaged on the way")
    os.makedirs(os.path.dirname(place), exist_ok=True)
    folder = tempfile.mkdtemp(prefix=".mldyno-host-", dir=os.path.dirname(place))
    try:
        wheel = os.path.join(folder, f"mldyno-{version}-py3-none-any.whl")
        with open(wheel, "wb") as file:
            file.write(packed)
        part = os.path.join(folder, "host")
        python = os.path.join(part, "bin", "python")
        own = map(os.path.expanduser, ("~/.local/bin", "~/.cargo/bin"))  # no login shell has set the path
        uv = shutil.which("uv", path=os.pathsep.join([os.environ.get("PATH", ""), *own]))
        if uv:
            run([uv, "venv", "-q", "--system-site-packages", "--python", sys.executable, part], folder)
        else:
            run([sys.executable, "-m", "venv", "--system-site-packages", part], folder)
        see_packages_of_this_interpreter(python)
        quiet = ["--disable-pip-version-check", "-q"]
        pip = [uv, "pip", "install", "-q", "--python", python] if uv else [python, "-m", "pip", "install", *quiet]
        run([*pip, wheel], folder)
        if not os.path.exists(place):
            os.rename(part, place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def see_packages_of_this_interpreter(python: str) -> None:
    """Let an environment on top of another environment see what is installed in that one."""
    if sys.prefix == sys.base_prefix:
        return
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    folder = subprocess.run(ask, stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    with open(os.path.join(folder, "below.pth"), "w") as file:
        file.writelines(f"{path}\n" for path in sys.path if path.endswith("site-packages"))


def asked_for() -> bytes:
    """Return the bytes that come in answer, in one line of base64."""
    line = b""
    while b"\n" not in line:
        line = (line + heard()).lstrip()  # beats come before it
    return base64.b64decode(line.partition(b"\n")[0])


def heard() -> bytes:
    """Return what came in; raise where the line is cut."""
    if not select.select([0], [], [], SILENT_S)[0]:
        raise EOFError("nothing was heard for a while")
    came = os.read(0, 1 << 16)
    if not came:
        raise EOFError("the connection ended")
    return came


def run(words: list[str], folder: str) -> None:
    """Run a tool while the line is alive; raise with its last line."""
    with open(os.path.join(folder, "said"), "w+b") as said_:
        tool = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said_, stderr=said_, start_new_session=True)
        began = spoken = last = time.monotonic()
        try:
            while tool.poll() is None:
                if select.select([0], [], [], 0.2)[0]:
                    heard()
                    last = time.monotonic()
                now = time.monotonic()
                if now - last > SILENT_S or now - began > INSTALL_S:
                    raise EOFError(f"{os.path.basename(words[0])} was not done in time")
                if now - spoken > ALIVE_S:
                    spoken = now
                    say(**{"is": "alive"})
        finally:
            if tool.poll() is None:
                os.killpg(tool.pid, 9)
            tool.wait()
        said_.seek(0)
        lines = said_.read().decode(errors="replace").split("\n")
    if tool.returncode:
        last_line = [line.strip() for line in lines if line.strip()][-1:] or [f"exit code {tool.returncode}"]
        raise OSError(f"{os.path.basename(words[0])}: {last_line[0][:500]}")
