"""This machine's key: a secret in the user's data folder, and what it proves.

Records hold the fingerprint of its public half, which says nothing of the machine but that it is not another one of
the same name. The private half signs submissions, so that only its owner can replace a row of a collection, and
authenticates what this machine writes for itself: rescue files, and the plans of its runs. It never leaves the machine.

A home folder may be shared by many machines. The first of them keeps the secret of the folder, and every other one has
its own there, by an identifier made of its host name and the system's id. A container whose host name is made up anew
each time has no identifier, and uses the secret of the folder.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import socket
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mldyno.errors import MldynoError, UsageError
from mldyno.records import MACHINE_KEY
from mldyno.system_queries import ask, read

VARIABLE = "MLDYNO_MACHINE_KEY"
_BYTES = 32  # of a private key and of a public one
_SUBMISSION = "mldyno submission"
RESCUE = "rescue"  # what the code of a rescue file is for


class Secret(NamedTuple):
    """An Ed25519 key pair, as raw bytes."""

    private: bytes
    public: bytes


def data_folder() -> Path:
    """Return the folder of the secret: one for each user of a machine, whatever store is used."""
    from platformdirs import user_data_dir

    return Path(user_data_dir("mldyno"))


def own_key() -> str | None:
    """Return what records call this machine; None where no secret can be kept."""
    secret = _own_secret()
    return None if secret is None else fingerprint(secret.public)


def fingerprint(public: bytes) -> str:
    """Return the key that records hold for a public key."""
    return hashlib.sha256(public).hexdigest()[:32]


def current_key(key: str) -> str:
    """Return this machine's current key if `key` is its former one, from before it had a secret; else `key`."""
    former = os.environ.get(VARIABLE)  # it was the variable itself, or in the file machine-key
    if former:
        return own_key() or key if key == former else key
    with suppress(OSError):
        former = (data_folder() / "machine-key").read_text(encoding="ascii", errors="replace").strip()
    return own_key() or key if key and key == former and _first_here() else key


def check_secret(known: Collection[str]) -> None:
    """Raise where MLDYNO_MACHINE_KEY is one of the keys that records hold, as those of earlier versions do."""
    if os.environ.get(VARIABLE) in known:
        raise MldynoError(
            f"{VARIABLE} is in records of an earlier mldyno, so it is no secret; unset it, and write its value into "
            f"{data_folder() / 'machine-key'}: these records remain this machine's."
        )


def sign(ids: Iterable[str]) -> tuple[str, str]:
    """Return the public key and a signature over the ids of records, both in hexadecimal digits."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    secret = _own_secret()
    if secret is None:
        raise MldynoError(
            f"no key can be kept in {data_folder()}, and a submission is signed with it; make that folder writable, "
            f"or set {VARIABLE}."
        )
    return secret.public.hex(), Ed25519PrivateKey.from_private_bytes(secret.private).sign(_signed_text(ids)).hex()


def signer(ids: Iterable[str], public: str, signature: str) -> str | None:
    """Return the key whose owner signed these ids; None where the signature is not valid."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = bytes.fromhex(public)
        Ed25519PublicKey.from_public_bytes(raw).verify(bytes.fromhex(signature), _signed_text(ids))
    except (InvalidSignature, ValueError):
        return None
    return fingerprint(raw)


def _signed_text(ids: Iterable[str]) -> bytes:
    """Return the text that the signature of a submission covers."""
    return "\n".join((_SUBMISSION, *sorted(ids))).encode()


def authenticate(*parts: str) -> str:
    """Return a code that only this machine can make of these texts; empty where it has no secret."""
    secret = _own_secret()
    if secret is None:
        return ""
    return hmac.new(secret.private, "\0".join(("mldyno", *parts)).encode(errors="surrogatepass"), "sha256").hexdigest()


def is_authentic(code: str, *parts: str) -> bool:
    """Return whether this machine made the code of these texts."""
    own = authenticate(*parts)
    return bool(own) and hmac.compare_digest(own.encode(), code.encode(errors="surrogatepass"))


def _own_secret() -> Secret | None:
    """Return the secret of MLDYNO_MACHINE_KEY, or the one that is kept, made now if there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        if not MACHINE_KEY.fullmatch(named):
            raise UsageError(f"{VARIABLE} must be 32 digits from 0 to 9 and a to f.")
        return of_seed(named)
    path = data_folder() / ("machine-secret" if _first_here() else f"machine-secret-{host()}")
    with suppress(OSError):
        return _read(path) or _make(path)
    return None


# -- machines that share a home folder -------------------------------------------------------------
CONTAINERS = ("/.dockerenv", "/run/.containerenv")  # whose system's id, if any, is that of their image
MADE_UP = re.compile("[0-9a-f]{12}")  # host name of a container that the user gave none
TRANSIENT_ID = "/run/machine-id"  # exists where the system's id is new at each boot, as on nodes without a disk
NO_NAMES = ("", "localhost", "(none)")  # of a host that has no name
HOST = re.compile("[0-9a-f]{16}")
FIRST = "machine-host"  # file with the identifier of the machine that was the first to use the folder


@cache
def host() -> str:
    """Return an identifier of this machine that others with the same home folder do not have; empty if unknown."""
    if sys.platform == "darwin":  # its host name changes with the network
        words = re.findall(
            r'"IOPlatformUUID" = "([0-9A-Fa-f-]+)"', ask("ioreg", "-rd1", "-c", "IOPlatformExpertDevice")
        )
        return _identifier(*words[:1])
    name = socket.gethostname().partition(".")[0].lower()
    contained = any(map(os.path.exists, CONTAINERS))
    if "KUBERNETES_SERVICE_HOST" in os.environ or (contained and MADE_UP.fullmatch(name)):
        return ""
    of_system = "" if contained or os.path.exists(TRANSIENT_ID) else read("/etc/machine-id")
    return _identifier(*([] if name in NO_NAMES else [name]), *filter(None, [of_system]))


def _identifier(*words: str) -> str:
    return hashlib.sha256("\n".join(("mldyno host", *words)).encode()).hexdigest()[:16] if words else ""


def _first_here() -> bool:
    """Return whether this is the machine that was the first to use the folder; so is one that can't be identified."""
    own, path = host(), data_folder() / FIRST
    if not own:
        return True
    with suppress(OSError):
        if not _first_of(path):
            _put(path, f"{own}\n", lambda: bool(_first_of(path)))
        return _first_of(path) in (own, "")
    return True


def _first_of(path: Path) -> str:
    """Return the identifier in a file; empty where there is none."""
    with suppress(FileNotFoundError):
        text = path.read_text(encoding="ascii", errors="replace").strip()
        return text if HOST.fullmatch(text) else ""
    return ""


def of_seed(text: str) -> Secret:
    """Return the key pair of a text that the user chose."""
    return _pair(hashlib.sha256(f"mldyno machine key {text}".encode()).digest())


def _pair(private: bytes) -> Secret:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Secret(private, Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())


def _read(path: Path) -> Secret | None:
    """Return the pair in a file; both halves are kept, so that a command that signs nothing need not compute one."""
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            words = file.read(1000).split()
        secret = Secret(*map(bytes.fromhex, words))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return secret if {*map(len, secret)} == {_BYTES} else None


def _make(path: Path) -> Secret | None:
    """Make a secret; of two processes, both use the first one's."""
    import secrets

    private, public = _pair(secrets.token_bytes(_BYTES))
    _put(path, f"{private.hex()} {public.hex()}\n", lambda: _read(path) is not None)
    return _read(path)


def _put(path: Path, text: str, is_whole: Callable[[], bool]) -> None:
    """Write a file by way of a temporary one, unless there is one that is whole: of two processes, the first wins."""
    import tempfile

    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # which only its owner can read
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as out:
            out.write(text)
        try:
            os.link(part, path)
        except FileExistsError:
            if not is_whole():
                os.replace(part, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)
