"""mldyno beside its peers, side by side in one run: `make bench-peers` writes bench/PEERS.md.

python -m bench.peers                    10 rounds and a noisy one, into bench/PEERS.md: over an hour
python -m bench.peers --rounds 3         fewer rounds, shown only
python -m bench.peers --quick            one short round, shown only: does it still work?
python -m bench.peers --only pyperf      one tool, shown only; can be given again
python -m bench.peers --again            the page once more, from the answers of the last full run
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.peers import environments, report, rounds
from bench.peers.ours import LEARNED, STORE
from bench.peers.tools import say

ROUNDS = 10
PAGE = Path(__file__).resolve().parent.parent / "PEERS.md"
KEPT = environments.PLACE / "rounds.jsonl"
KEPT_WHERE = environments.PLACE / "circumstances.json"
COMMAND = "make bench-peers"


def main() -> None:
    """Run the rounds that are asked for; write the page only where all of it was measured in full."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="mldyno beside its peers")
    parser.add_argument("--rounds", type=int, help=f"how many rounds; {ROUNDS} in full")
    parser.add_argument("--quick", action="store_true", help="one short round, shown only")
    parser.add_argument("--only", action="append", choices=[tool.name for tool in rounds.TOOLS], help="one tool")
    parser.add_argument("--again", action="store_true", help="write the page from the last full run")
    given = parser.parse_args()
    if given.again:
        where = report.Circumstances(tuple(json.loads(KEPT_WHERE.read_text(encoding="utf-8"))))
        _write(rounds.read(KEPT), where)
        return
    full = not (given.quick or given.only or given.rounds)
    tools = [tool for tool in rounds.TOOLS if not given.only or tool.name in given.only]
    names = [tool.environment for tool in tools] + [rounds.REFERENCES[tool.reference].environment for tool in tools]
    environments.ready(list(dict.fromkeys(names)))
    versions = {name: environments.versions(name) for name in dict.fromkeys(names)}
    where = report.circumstances(report.load(), versions)
    if full:
        KEPT.unlink(missing_ok=True)
        if not STORE.exists():
            say("mldyno learns what is usual here")
            for number in range(LEARNED):
                list(rounds.turns(-number - 1, [rounds.OURS]))
        KEPT_WHERE.write_text(json.dumps(where.lines), encoding="utf-8")
    turns: list[rounds.Turn] = []
    for number in range(1, (given.rounds or (1 if given.quick else ROUNDS)) + 1):
        say(f"round {number}")
        turns += _kept(rounds.turns(number, tools, quick=given.quick), full)
    if not given.quick:
        say("a noisy round")
        with rounds.neighbours(os.cpu_count() or 1):
            turns += _kept(rounds.turns(0, tools, noisy=True), full)
    if full:
        _write(turns, where)
    else:
        print(report.page(turns, where, "python -m bench.peers " + " ".join(sys.argv[1:])), end="")


def _kept(turns: Iterator[rounds.Turn], full: bool) -> list[rounds.Turn]:
    found = []
    for turn in turns:
        found.append(turn)
        if full:
            rounds.write(turn, KEPT)
    return found


def _write(turns: list[rounds.Turn], where: report.Circumstances) -> None:
    PAGE.write_text(report.page(turns, where, COMMAND), encoding="utf-8")
    say(f"written: bench/{PAGE.name}")


if __name__ == "__main__":
    main()
