"""Loops as people write them, each run with and without `track`: the same batches, the same numbers, one record."""

from __future__ import annotations

import contextlib
import gc
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tracking.programs import ran, stored, written
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm  # type: ignore[import-untyped]

from mldyno.records import Record
from mldyno.store import Store
from mldyno.tracking import tracker

Track = Callable[..., Any]
Seen = list[Any]


class Untracked:
    """What `track` gives, without it."""

    def __init__(self, loader: Any = None) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def __enter__(self) -> Untracked:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def step(self, batch: Any = None) -> None:
        pass

    def apart(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def untracked(loader: Any = None, **settings: Any) -> Untracked:
    return Untracked(loader)


def numbered(count: int = 160, batch: int = 4, **settings: Any) -> DataLoader[Any]:
    """Batches that can be told apart."""
    numbers = torch.arange(count, dtype=torch.float32)
    return DataLoader(TensorDataset(numbers.unsqueeze(1), numbers % 2), batch_size=batch, **settings)


def learner(features: int = 1) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 2))
    return model, torch.optim.SGD(model.parameters(), lr=1e-4)


def busy() -> None:
    """Long enough for blocks of a few steps, on any machine."""
    sum(range(20_000))


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, x: Any, y: Any) -> float:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y.long())
    loss.backward()
    optimizer.step()
    busy()
    return float(loss.item())


def digits_main(track: Track, seen: Seen) -> None:
    """A main with functions for an epoch and for a test, a small convolution, and a scheduler."""

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(1, 2, 3), nn.Linear(72, 10)

        def forward(self, x: Any) -> Any:
            return nn.functional.log_softmax(self.last(torch.relu(self.first(x)).flatten(1)), dim=1)

    def train(epoch: int) -> None:
        model.train()
        for index, (data, target) in enumerate(track(train_loader, item="image")):
            optimizer.zero_grad()
            loss = nn.functional.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            if index % 10 == 0:
                seen.append((epoch, index, len(data), loss.item(), len(train_loader.dataset)))

    def test() -> None:
        model.eval()
        with torch.no_grad():
            seen.append(sum(model(data).argmax(1).eq(target).sum().item() for data, target in test_loader))

    torch.manual_seed(1)
    images = TensorDataset(torch.randn(320, 1, 8, 8), torch.randint(0, 10, (320,)))
    train_loader, test_loader = DataLoader(images, 8, shuffle=True), DataLoader(images, 64)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
    for epoch in range(2):
        train(epoch)
        test()
        scheduler.step()


def letters_script(track: Track, seen: Seen) -> None:
    """No loader: a function that cuts batches out of a text, micro-steps, autocast, and an estimate now and then."""
    torch.manual_seed(3)
    text = torch.randint(0, 16, (2000,))
    model = nn.Sequential(nn.Embedding(16, 16), nn.Linear(16, 16))
    optimizer = torch.optim.AdamW(model.parameters())

    def get_batch() -> tuple[Any, Any]:
        places = torch.randint(len(text) - 9, (4,))
        return torch.stack([text[i : i + 8] for i in places]), torch.stack([text[i + 1 : i + 9] for i in places])

    x, y = get_batch()
    with track(items=4 * 4 * 8, item="token") as t:
        for number in range(60):
            if number % 20 == 0:
                with t.apart(), torch.no_grad():
                    seen.append(nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).item())
            for _ in range(4):
                with torch.autocast("cpu", torch.bfloat16):
                    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()) / 4
                x, y = get_batch()
                loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            seen.append((number, loss.item()))
            t.step()


def two_workers(track: Track, seen: Seen) -> None:
    torch.manual_seed(5)
    model, optimizer = learner()
    loader = numbered(shuffle=True, num_workers=2)
    for _ in range(2):
        for x, y in track(loader):
            seen.append((x.flatten().tolist(), trained(model, optimizer, x, y)))


def broken_off(track: Track, seen: Seen) -> None:
    model, optimizer = learner()
    for x, y in track(numbered()):
        seen.append((x.flatten().tolist(), trained(model, optimizer, x, y)))
        if len(seen) == 30:
            break


def failing(track: Track, seen: Seen) -> None:
    model, optimizer = learner()
    try:
        for x, y in track(numbered()):
            seen.append((x.flatten().tolist(), trained(model, optimizer, x, y)))
            if len(seen) == 30:
                raise FloatingPointError("the loss is NaN")
    except FloatingPointError as error:
        seen.append(str(error))


def accumulating(track: Track, seen: Seen) -> None:
    model, optimizer = learner()
    for place, (x, y) in enumerate(track(numbered()), start=1):
        (nn.functional.cross_entropy(model(x), y.long()) / 4).backward()
        seen.append(x.flatten().tolist())
        busy()
        if place % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


def training_and_validation(track: Track, seen: Seen) -> None:
    model, optimizer = learner()
    loaders = {"train": numbered(), "val": numbered(80)}
    for epoch in range(2):
        for phase, loader in loaders.items():
            for x, y in track(loader, name=f"{phase}.loop"):
                with torch.set_grad_enabled(phase == "train"):
                    loss = trained(model, optimizer, x, y) if phase == "train" else model(x).sum().item()
                busy()
                seen.append((epoch, phase, x.flatten().tolist(), loss))


def validation_within(track: Track, seen: Seen) -> None:
    model, optimizer = learner()
    training, validation = track(numbered()), numbered(16)
    for place, (x, y) in enumerate(training):
        seen.append((x.flatten().tolist(), trained(model, optimizer, x, y)))
        if place % 10 == 9:
            with training.apart(), torch.no_grad():
                for inner, _ in track(validation, name="validation"):
                    busy()
                    seen.append(model(inner).sum().item())


def by_next(track: Track, seen: Seen) -> None:
    """Steps are counted, and the loader is begun again when it is through."""
    model, optimizer = learner()
    tracked = track(numbered())
    batches = iter(tracked)
    for _ in range(100):
        try:
            x, y = next(batches)
        except StopIteration:
            batches = iter(tracked)
            x, y = next(batches)
        seen.append((x.flatten().tolist(), trained(model, optimizer, x, y)))


def bar_around(track: Track, seen: Seen) -> None:
    model, optimizer = learner()
    bar = tqdm(track(numbered()), file=io.StringIO())
    seen.append(bar.total)
    for x, y in bar:
        seen.append((x.flatten().tolist(), trained(model, optimizer, x, y)))
        bar.set_postfix(loss=1)


def bar_within(track: Track, seen: Seen) -> None:
    model, optimizer = learner()
    for x, y in track(tqdm(numbered(), file=io.StringIO())):
        seen.append((x.flatten().tolist(), trained(model, optimizer, x, y)))


def two_loaders(track: Track, seen: Seen) -> None:
    model, optimizer = learner()
    for (x, y), (other, _) in zip(track(numbered(), name="labelled"), numbered(200), strict=False):
        seen.append((other.flatten().tolist(), trained(model, optimizer, x, y)))


def counted_batches(track: Track, seen: Seen) -> None:
    model, optimizer = learner()
    loader = numbered()
    for epoch in range(1, 4):
        for number, batch in enumerate(track(loader), start=1):
            seen.append((epoch, number, trained(model, optimizer, *batch)))


def many_names(track: Track, seen: Seen) -> None:
    """Batches are mappings, and their loader an object of the project."""

    class Corpus:
        def __iter__(self) -> Iterator[dict[str, Any]]:
            for place in range(40):
                yield {"name": f"text {place}", "input_ids": torch.full((6, 12), float(place))}

    for batch in track(Corpus(), item="token", items=lambda batch: batch["input_ids"].numel()):
        busy()
        seen.append((batch["name"], batch["input_ids"].sum().item()))


@dataclass(frozen=True)
class Expected:
    """What a loop leaves: how many steps, epochs and items of a step in each record, and how it ended."""

    steps: int
    epochs: int | None = 1
    items: int = 4
    ended: str = "end"
    waits: bool = True


FOREIGN: dict[Callable[[Track, Seen], None], tuple[Expected, ...]] = {
    digits_main: (Expected(80, 2, 8),),
    letters_script: (Expected(60, None, 128, waits=False),),
    two_workers: (Expected(80, 2),),
    broken_off: (Expected(30, 1, ended="left"),),
    failing: (Expected(30, 1, ended="left"),),
    accumulating: (Expected(40),),
    training_and_validation: (Expected(80, 2), Expected(40, 2)),
    validation_within: (Expected(40), Expected(16, 4)),
    by_next: (Expected(100, 3, ended="left"),),
    bar_around: (Expected(40),),
    bar_within: (Expected(40),),
    two_loaders: (Expected(40),),
    counted_batches: (Expected(120, 3),),
    many_names: (Expected(40, 1, 72),),
}


def steps_of(record: Record) -> int:
    return sum(part.block * len(part.values) for part in record.series
               if part.metric == "step_time" and part.stage in ("first", "warmup", "steady", "long"))  # fmt: skip


@pytest.mark.parametrize("loop", FOREIGN, ids=lambda loop: loop.__name__)
def test_a_foreign_loop_stays_what_it_is_and_has_its_record(
    store: Store, capfd: pytest.CaptureFixture[str], loop: Callable[[Track, Seen], None]
) -> None:
    plain, tracked = [], []  # type: Seen, Seen
    loop(untracked, plain)
    loop(tracker.track, tracked)
    gc.collect()  # a frame of an error holds its loader
    assert tracked == plain
    records = stored(store)
    assert len(records) == len(FOREIGN[loop])
    by_steps = sorted(zip(map(steps_of, records), records, strict=True), key=lambda pair: -pair[0])
    for (steps, record), expected in zip(by_steps, FOREIGN[loop], strict=True):
        assert 0.5 * expected.steps <= steps <= expected.steps
        assert record.status in ("ok", "unsteady")
        facts = (record.fact("epochs"), record.fact("items_per_step"), record.fact("ended"))
        assert facts == (expected.epochs, expected.items, expected.ended)
        assert (sum(record.values("data_wait", None)) > 0) == expected.waits
    said = capfd.readouterr()
    lines = said.err.splitlines()
    assert said.out == ""
    assert len(lines) == len(records), lines
    assert all(line.startswith("mldyno: ") and " [record " in line for line in lines)


STEPS = 10_000  # of 20 µs: room for all rounds where others interrupt the first blocks, and the next ones are longer


def test_a_generator_with_replay_gives_every_batch_once_in_order(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    def source() -> Iterable[int]:
        yield from range(STEPS)

    seen: list[int] = []
    for number in tracker.track(source(), replay=True, name="replay"):
        sum(range(2000))
        if not seen or seen[-1] != number:
            seen.append(number)
    gc.collect()
    assert seen == list(range(STEPS))
    (record,) = stored(store)
    assert len(record.values("held_time", "beside")) == len(record.values("step_time", "beside")) >= 24
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_a_tracker_in_a_function_that_lives_to_the_end_is_said_once(store: Store, tmp_path: Path) -> None:
    done = ran(str(written(tmp_path, """
        kept = []

        def train():
            loader = [place for place in range(60)]
            tracked = mldyno.track(loader)
            kept.append(tracked)
            for place in tracked:
                step()
            return place

        print(train())
    """)))  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "59\n")
    assert len(done.stderr.splitlines()) == 1
    assert [record.fact("ended") for record in stored(store)] == ["end"]


def test_processes_that_the_program_forks_write_no_second_record(store: Store, tmp_path: Path) -> None:
    """Workers that leave by os._exit, and children that end as programs do, with all that runs at exit."""
    done = ran(str(written(tmp_path, """
        import multiprocessing, os, sys

        loader = [place for place in range(60)]
        tracked = mldyno.track(loader)
        for place in tracked:
            step()
            if place == 40:
                child = multiprocessing.get_context("fork").Process(target=step)
                child.start()
                child.join()
                with multiprocessing.get_context("fork").Pool(2) as pool:
                    pool.map(abs, range(4))
            if place == 50 and os.fork() == 0:
                for rest in tracked:  # its own copy of the loop
                    pass
                sys.exit(0)  # not os._exit: finalizers run
        os.wait()
    """)))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("mldyno: ")]) == 1
    assert len(stored(store)) == 1
