"""`python -m mldyno` is the command `mldyno`."""

from mldyno.cli import main

main()
