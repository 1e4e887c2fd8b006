"""Get the tools of labs: python -m bench.labs ssh slurm ray postgres."""

from __future__ import annotations

import sys

from bench.labs.tools import PACKAGES, MissingTool, get


def main() -> None:
    """Get what the named labs need."""
    for lab in sys.argv[1:]:
        if lab not in (*PACKAGES, "ray"):
            sys.exit(f"there is no lab '{lab}'; there are {', '.join(PACKAGES)} and ray")
        try:
            get(lab)
        except MissingTool as error:
            sys.exit(f"lab {lab}: {error}")


if __name__ == "__main__":
    main()
