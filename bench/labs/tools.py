"""The tools of the labs: where they are, and how they get here.

Debian's packages are unpacked below `.labs`, not installed: an installed sshd or slurmd would start, and listen. What
the system has is taken where nothing is unpacked. Ray has a virtual environment there, apart from mldyno's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".labs"
PACKAGES = {
    "ssh": ("openssh-server", "openssh-client"),
    "slurm": ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge"),
    "postgres": ("postgresql",),
}
RAY = "ray==2.60.0"
FOLDERS = ("usr/sbin", "usr/bin", "sbin", "bin")


class MissingTool(Exception):
    """A tool of a lab is not here; says what to install."""


class Tools:
    """What a lab needs of the system: unpacked, or installed."""

    def __init__(self, lab: str) -> None:
        self.lab = lab
        self.folder = PLACE / lab

    @property
    def libraries(self) -> list[Path]:
        """The folders of the unpacked libraries."""
        return [*self.folder.glob("usr/lib/*-linux-gnu"), *self.folder.glob("usr/lib/*-linux-gnu/slurm-wlm")]

    @property
    def environment(self) -> dict[str, str]:
        """What an unpacked program needs to find its libraries."""
        return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, self.libraries))} if self.libraries else {}

    def program(self, name: str) -> str:
        """Return the path of a program, or say what to install."""
        for folder in (*(self.folder / each for each in FOLDERS), *self.folder.glob("usr/lib/postgresql/*/bin")):
            if (folder / name).exists():
                return str(folder / name)
        installed = shutil.which(name, path=_system_path())
        if installed is None:
            raise MissingTool(
                f"{name} is missing; `make lab-{self.lab}` unpacks it on Debian and Ubuntu. Elsewhere install "
                f"{' '.join(PACKAGES[self.lab])}, or run the tests without it: see LABS in the Makefile"
            )
        return installed


def _system_path() -> str:
    folders = [os.environ.get("PATH", ""), "/usr/sbin", "/sbin", *map(str, Path("/usr/lib").glob("postgresql/*/bin"))]
    return os.pathsep.join(folders)


def ray_python() -> str:
    """Return the interpreter that has Ray, or say what to install."""
    python = PLACE / "ray" / "bin" / "python"
    if not (PLACE / "ray" / "made").exists():
        raise MissingTool("Ray is missing; `make lab-ray` installs it into .labs/ray, 282 MB")
    return str(python)


def needed(*programs: str) -> None:
    """Fail where a program of the system is missing."""
    for name in programs:
        if shutil.which(name, path=_system_path()) is None:
            raise MissingTool(f"{name} is missing; install Debian's packages iproute2 and util-linux")


# -- how they get here -------------------------------------------------------------------------------


def get(lab: str) -> None:
    """Get the tools of a lab, once."""
    made = PLACE / lab / "made"
    wanted = RAY if lab == "ray" else " ".join(PACKAGES[lab])
    if made.exists() and made.read_text(encoding="utf-8") == wanted:
        return
    shutil.rmtree(PLACE / lab, ignore_errors=True)
    if lab == "ray":
        _get_ray()
    else:
        _unpack(lab)
    made.write_text(wanted, encoding="utf-8")


def _get_ray() -> None:
    folder = PLACE / "ray"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), RAY], check=True)


def _unpack(lab: str) -> None:
    """Unpack Debian's packages, and those that they need and the system lacks."""
    if shutil.which("apt-get") is None:
        raise MissingTool(f"these tools come from Debian's packages; install {' '.join(PACKAGES[lab])} yourself")
    folder = PLACE / lab
    debs = folder / "debs"
    (debs / "partial").mkdir(parents=True)
    get = ["apt-get", "-o", f"Dir::Cache::archives={debs}", "-o", "DPkg::Lock::Timeout=300", "-qq", "-y",
           "--no-install-recommends", "--download-only", "install", *PACKAGES[lab]]  # fmt: skip
    if subprocess.run(get, check=False, capture_output=True).returncode:
        subprocess.run(["apt-get", "-o", "DPkg::Lock::Timeout=300", "-qq", "update"], check=True)
        subprocess.run(get, check=True)
    for package in debs.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
    shutil.rmtree(debs)
