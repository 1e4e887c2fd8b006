"""mldyno itself as a wheel, for hosts that do not have this version of it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from functools import cache
from importlib import metadata
from pathlib import Path

import mldyno
from mldyno.errors import MldynoError
from mldyno.fleet import boot

WHEEL = "Wheel-Version: 1.0\nGenerator: mldyno\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # that a zip file can hold: the same files are the same wheel


@cache
def wheel() -> tuple[bytes, str]:
    """Return this package as a wheel, and the SHA-256 of that."""
    package = Path(mldyno.__file__).parent
    info = f"mldyno-{mldyno.__version__}.dist-info"
    try:
        about = metadata.distribution("mldyno").read_text("METADATA") or ""
    except metadata.PackageNotFoundError:
        raise MldynoError("mldyno is not installed as a package here, so it can't be sent to a host.") from None
    files = {f"mldyno/{path.relative_to(package).as_posix()}": path.read_bytes()
             for path in sorted(package.rglob("*")) if path.is_file() and "__pycache__" not in path.parts}  # fmt: skip
    files |= {f"{info}/METADATA": about.encode(), f"{info}/WHEEL": WHEEL.encode()}
    record = "".join(f"{name},sha256={_hash(content)},{len(content)}\n" for name, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, FIRST_DATE), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue(), hashlib.sha256(packed.getvalue()).hexdigest()


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def wheel_line() -> bytes:
    """Return the wheel as the line that answers `WantsWheel`."""
    return base64.b64encode(wheel()[0]) + b"\n"


# What an interpreter on a host is started with: it runs the text in the first line that it gets. Read without a
# buffer, since what follows belongs to the remote runner.
LOADER = (
    "import sys;sys.path[:]=filter(None,sys.path);import json;exec(json.loads(open(0,'rb',0,closefd=False).readline()))"
)


@cache
def boot_line() -> bytes:
    """Return `boot` as that first line, with the version that it is to find."""
    text = Path(boot.__file__).read_text(encoding="utf-8")
    return json.dumps(f"{text}\nmain({mldyno.__version__!r}, {wheel()[1]!r})\n").encode() + b"\n"
