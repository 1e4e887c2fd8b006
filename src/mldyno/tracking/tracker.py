"""The tracker that a user holds: the loader as it was, with its steps timed.

The loop as a whole is one record, however many epochs it has, and however often its loader is tracked. It is finished
by `finish`, at the end of a `with`, when the loader or the tracker is garbage-collected, or when the program ends.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from mldyno.axes import TRACKED, unstated
from mldyno.errors import UsageError
from mldyno.hardware.system import Contention
from mldyno.printable import name_from
from mldyno.records import Device, Record
from mldyno.runner.events import Interrupts
from mldyno.timing import clock as clocks
from mldyno.timing.loops import LoopTimes, ignore_batch
from mldyno.tracking import process
from mldyno.tracking.process import ItemCount, Items

if TYPE_CHECKING:
    from mldyno.timing.replays import Ahead

SHORT_WHILE_S = 0.05  # in which a finalizer returns

Sync = Callable[[], object]


class Loop:
    """One tracked loop: what is known about it so far, and how it is finished."""

    def __init__(
        self, title: str, number: int, items: Items, item: str, sync: Sync | None, store: Any,
        ahead: Ahead | None, clock: clocks.Clock | None = None,
    ) -> None:  # fmt: skip
        from mldyno.tracking import finishing  # before the first batch, and before the program ends: see there

        self.finishing = finishing
        self.title, self.item, self.store = title, item, store
        self.name = title if number == 1 else f"{title}#{number}"
        self.count = ItemCount(items)
        self.sync = sync
        self.place = process.Place(wait=sync)
        self.ranks: process.Ranks | None = None
        self.ended = "end"
        self.record: Record | None = None
        self.finished = False
        self.finalizer: weakref.finalize[..., Any] | None = None
        self.owner = os.getpid()
        self.contention = Contention()
        self.watched: bool | None = None
        self.times = LoopTimes(clock or clocks.now, self._find_wait)
        if ahead is not None:
            from mldyno.timing.replays import ReplayTimes

            self.times = ReplayTimes(clock or clocks.now, self._find_wait, ahead)
        self.times.look_at, self.times.every_batch = self._look_at, callable(items)

    def _find_wait(self) -> Sync | None:
        """Find the device and the ranks of the loop, when its first step has ended."""
        self.ranks = process.ranks()
        self.place = process.place()
        with suppress(Exception):
            self.contention.start(unstated(self.name, TRACKED), Device(self.place.device, TRACKED))
            self.watched = False
            self.watch(True)
        with suppress(Exception):
            from mldyno import machine as machines  # loaded by `finishing` already

            machines.describe()  # so that the end of the program has nothing to import
        return self.sync or self.place.wait

    def watch(self, goes_on: bool) -> None:
        """Count contention from now on, or until now; not in the first step and between epochs."""
        if self.watched is None or self.watched == goes_on:
            return
        with suppress(Exception):
            (self.contention.begin_window if goes_on else self.contention.end_window)()
            self.watched = goes_on

    def _look_at(self, batch: Any) -> None:
        if not self.count.look_at(batch):
            self.times.look_at, self.times.every_batch = ignore_batch, False

    def finish(self) -> None:
        """Make the record, store it and report it, once; in the process that has begun it."""
        self._finish().raise_again()

    def _finish(self) -> Interrupts:
        """Finish it; return the signals that came during that: none of them interrupts a write."""
        interrupts = Interrupts()
        if self.finished or os.getpid() != self.owner:
            return interrupts
        self.finished = True
        LIVE.pop(self, None)
        if self.finalizer is not None:
            self.finalizer.detach()  # else it would keep this alive as long as the loader
        self.watch(False)
        with interrupts:
            try:
                self.record = self.finishing.finish(self, interrupts)
            except Exception as error:  # the training itself has ended well
                self.finishing.say(f"{self.name}: nothing was recorded: {type(error).__name__}: {error}")
        return interrupts

    def finish_in_finalizer(self) -> None:
        """Finish it in a finalizer, where an exception would be lost: a signal is raised again once that has returned.

        A program that has ended has its exit code already, and gets no signal any more.
        """
        interrupts = self._finish()
        if interrupts.came and threading.main_thread().is_alive():
            timer = threading.Timer(SHORT_WHILE_S, interrupts.raise_again)
            timer.daemon = True
            timer.start()


class Tracker:
    """A loader that is tracked, or a loop without one. It has all attributes of the loader."""

    _loop: Loop
    _loader: Any
    _iterator: Iterator[Any] | None

    def __init__(self, loop: Loop, loader: Any = None) -> None:
        vars(self).update(_loop=loop, _loader=loader, _iterator=None)  # other attributes are the loader's

    # -- the loader, as it was ---------------------------------------------------------------------
    def __iter__(self) -> Iterator[Any]:
        iterator: Iterator[Any] = iter(self._loader)  # now, as without us: a sampler may draw its numbers here
        if self._loop.finished:
            return iterator
        self._loop.ended = "left"
        self._loop.watch(True)
        return self._loop.times.batches(iterator, self._ended)

    def _ended(self, end: bool) -> None:
        self._loop.ended = "end" if end else "left"
        self._loop.watch(False)
        if process.interactive():  # such a program may not end for a long time
            self._loop.finish()

    def __next__(self) -> Any:
        if not hasattr(type(self._loader), "__next__"):
            raise TypeError(f"{type(self._loader).__name__!r} object is not an iterator")
        iterator = self._iterator or iter(self)
        vars(self)["_iterator"] = iterator
        return next(iterator)

    def __len__(self) -> int:
        return len(self._loader)

    def __bool__(self) -> bool:
        return self._loader is None or bool(self._loader)

    def __getitem__(self, key: Any) -> Any:
        return self._loader[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_loader"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._loader, name, value)

    # -- a loop without a loader -------------------------------------------------------------------
    def __enter__(self) -> Tracker:
        if self._loader is None:
            self._loop.times.begin(self._loop.times.clock())
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self._loop.ended = kind.__name__
        self._loop.finish()

    def step(self, batch: Any = None) -> None:
        """End a step; its batch, if given, shows how many items it had."""
        times = self._loop.times
        times.end_step()
        if batch is not None:
            times.look_at(batch)

    def fetched(self, waited: bool = True) -> None:
        """Begin the next step: since the last one ended, the loop has waited for its batch."""
        self._loop.times.fetched(waited)

    def pause(self) -> None:
        """Exclude what follows from steps, until the next batch is there."""
        self._loop.times.pause()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Exclude what is done within from steps: validation, saving."""
        times = self._loop.times
        times.pause()
        try:
            yield
        finally:
            times.end_apart()

    # -- the end of the loop -----------------------------------------------------------------------
    def finish(self) -> Record | None:
        """End it here: store the record and report it; return the record, if there is one."""
        self._loop.finish()
        return self._loop.record

    def __str__(self) -> str:
        return str(self._loop.finishing.line_so_far(self._loop))

    __repr__ = __str__


# -- one loop for a loader -----------------------------------------------------------------------------

LIVE: dict[Loop, weakref.ref[Any] | None] = {}
"""The loops that are not finished, in the order they came, each with its loader where one can be watched."""


def track(
    loader: Any = None, *, name: str | None = None, items: Items = None, item: str = "item", replay: bool = False,
    sync: Sync | None = None, store: Any = None, clock: clocks.Clock | None = None,
) -> Tracker:  # fmt: skip
    """Measure a training loop as it runs: `for batch in mldyno.track(loader):`, and nothing else.

    Without a loader: `with mldyno.track() as t:`, and `t.step()` after each step. `items` is the number of items of a
    step, or a function of its batch; `item` is what they are called. `replay` repeats some batches, to measure what the
    loader costs. `sync` waits for a device that mldyno does not know. The record is stored at the end; a loader whose
    loop is not finished continues it.
    """
    if replay and loader is None:
        raise UsageError("replay=True holds batches of a loader: track(loader, replay=True)")
    if not (items is None or callable(items) or (isinstance(items, int) and items > 0)):
        raise UsageError("items is the number of items of a step, or a function that gives it for a batch.")
    if not (sync is None or callable(sync)):
        raise UsageError("sync is a function that waits for the device, such as torch.cuda.synchronize")
    watched = None
    with suppress(TypeError):  # a list can't be watched
        watched = None if loader is None else weakref.ref(loader)
    for loop, known in LIVE.items():
        if known is not None and known() is loader and loader is not None:
            return Tracker(loop, loader)
    title = name_from((name or process.script_name()).replace("/", ":"))
    alike = sum(loop.title == title for loop in LIVE)
    loop = Loop(title, alike + 1, items, item, sync, store, _fetched_ahead(loader) if replay else None, clock)
    tracker = Tracker(loop, loader)
    loop.finalizer = weakref.finalize(tracker if watched is None else loader, loop.finish_in_finalizer)
    LIVE[loop] = watched
    return tracker


def _fetched_ahead(loader: Any) -> Ahead:
    """Return what a loader of PyTorch has ready before it is asked; nothing is known about other loaders."""
    from mldyno.timing.replays import Ahead

    workers, each = (getattr(loader, name, None) or 0 for name in ("num_workers", "prefetch_factor"))
    return Ahead(workers * each, workers)
