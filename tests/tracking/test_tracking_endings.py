"""A program ends as it does without mldyno: its exit code, the signal that ended it, and what it says last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.tracking.programs import ran, stored

from mldyno.store import Store

PROGRAM = """
import atexit, contextlib, faulthandler, os, signal, sys, threading

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
if sys.argv[1] == "tracked":
    from mldyno import track
else:
    track = lambda loader: loader


class Loader:
    def __iter__(self):
        yield from range(50)


def step(batch):
    sum(range(20_000))
    if batch == 40:
        end()


def end():
    ENDING


WHERE
"""
WHERE = {
    "a variable": """
loader = Loader()
t = track(loader)
for batch in t:
    step(batch)
""",
    "its loader is a variable": """
loader = Loader()
for batch in track(loader):
    step(batch)
""",
    "nobody holds it": """
for batch in track(Loader()):
    step(batch)
""",
    "a function that was left": """
def main():
    loader = Loader()
    for batch in track(loader):
        step(batch)

main()
""",
    "a generator that is closed at the end": """
iterator = iter(track(batch for batch in range(50)))
while (batch := next(iterator)) < 45:
    step(batch)
""",
    "a cycle": """
class Trainer:
    pass

trainer = Trainer()
trainer.itself, trainer.loader = trainer, track(Loader())
for batch in trainer.loader:
    step(batch)
""",
    "a with": """
with track(Loader()) if sys.argv[1] == "tracked" else contextlib.nullcontext(Loader()) as loader:
    for batch in loader:
        step(batch)
""",
    "two of them": """
first, second = Loader(), Loader()
for batches in zip(track(first), track(second)):
    step(batches[0])
""",
}
INTERRUPTS = {"an interrupt": "raise KeyboardInterrupt", "Ctrl-C": "os.kill(os.getpid(), signal.SIGINT)"}
ENDINGS = {
    **INTERRUPTS,
    "the end": "pass",
    "exit": "sys.exit()",
    "exit with a code": "sys.exit(3)",
    "exit with a text": "sys.exit('no data')",
    "an error": "raise LookupError('nothing there')",
    "an error from an interrupt": "try: raise KeyboardInterrupt\n    except KeyboardInterrupt: raise OSError('late')",
    "an interrupt that is caught": "try: raise KeyboardInterrupt\n    except KeyboardInterrupt: pass",
    "exit at an interrupt": "try: raise KeyboardInterrupt\n    except KeyboardInterrupt: sys.exit(130)",
    "exit in a thread": "thread = threading.Thread(target=sys.exit, args=(3,)); thread.start(); thread.join()",
    "an error at exit": "atexit.register(divmod, 1, 0)",
    "exit at exit": "atexit.register(sys.exit, 4)",
    "an interrupt at exit": "atexit.register(signal.default_int_handler, 0, None)",
    "an interrupt and an error at exit": "atexit.register(divmod, 1, 0)\n    raise KeyboardInterrupt",
    "a hook that exits": "sys.excepthook = lambda *error: sys.exit(5)\n    raise KeyboardInterrupt",
}
KILLED = {
    "exit at once": "os._exit(7)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGINT without Python": "signal.signal(signal.SIGINT, signal.SIG_DFL)\n    os.kill(os.getpid(), signal.SIGINT)",
    "an abort": "os.abort()",
}
EVERYWHERE = ("a variable", "its loader is a variable")


def ended(script: Path, word: str, *options: str) -> tuple[int, list[str], int]:
    """Exit code, what the program said without the lines of mldyno, and how many lines mldyno said."""
    done = ran(*options, str(script), word)
    lines = done.stderr.splitlines()
    own = [line for line in lines if line.startswith("mldyno: ")]
    return done.returncode, [line for line in lines if line not in own], len(own)


@pytest.mark.parametrize("where", WHERE)
def test_a_program_ends_as_without_mldyno(store: Store, tmp_path: Path, where: str) -> None:
    endings = {**ENDINGS, **KILLED} if where in EVERYWHERE else INTERRUPTS
    scripts = {}
    for place, (ending, code) in enumerate(endings.items()):
        scripts[ending] = tmp_path / f"train{place}.py"
        scripts[ending].write_text(PROGRAM.replace("ENDING", code).replace("WHERE", WHERE[where]))
    with ThreadPoolExecutor(4) as pool:
        plain = dict(zip(scripts, pool.map(ended, scripts.values(), ["plain"] * len(scripts)), strict=True))
        tracked = dict(zip(scripts, pool.map(ended, scripts.values(), ["tracked"] * len(scripts)), strict=True))
    loops = 2 if where == "two of them" else 1
    for ending in endings:
        assert tracked[ending] == (*plain[ending][:2], 0 if ending in KILLED else loops), ending
    assert {plain[ending][0] for ending in INTERRUPTS} == {-2}
    assert len(stored(store)) == loops * len(endings.keys() - KILLED.keys())
