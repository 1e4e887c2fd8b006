"""An ONNX file as it is, in the hands of an engine: fed with random numbers, and held against itself unoptimised."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mldyno.frameworks import PROOF_NUMBERS, TOLERANCE, Unsupported, proof_case
from mldyno.frameworks._engine import Engine, EngineProgram
from mldyno.frameworks.program import BATCH_POOL
from mldyno.values import SEED

if TYPE_CHECKING:
    from mldyno.records import Case
    from mldyno.workloads import Build
    from mldyno.workloads.user_models.onnx import Feed, OnnxFile

NAMES = {"fp16": "float16", "fp32": "float32", "fp64": "float64"}
"""NumPy's names for types, where they are not ours."""


class FileProgram(EngineProgram):
    """A case whose network is a file; an engine gets its inputs by their names."""

    def __init__(
        self,
        case: Case,
        build: Build,
        load: Callable[[OnnxFile, Case], Engine],
        load_plain: Callable[[OnnxFile, Case], Engine | None],
    ) -> None:
        self.case, self.build, self.load_plain = case, build, load_plain
        recipe = build(None, case)
        self.file: OnnxFile = recipe.network
        self.params = self.file.params
        self.noted = dict(recipe.notes)
        self.engine = load(self.file, case)
        feeds = recipe.draw()[0]
        self.take([arrays(feeds, SEED + number) for number in range(BATCH_POOL)])

    @property
    def facts(self) -> Mapping[str, Any]:
        """The types of its weights; and that its results were held against nothing, where that is so."""
        return self.noted

    def error_vs_reference(self) -> tuple[float, float] | None:
        """Against the same file on the CPU, by one thread of ONNX Runtime that optimises nothing, on a small batch."""
        plain = self.load_plain(self.file, self.case)
        if plain is None:
            self.noted["not_checked"] = "agreement with the CPU"
            return None
        batch = arrays(self.build(None, proof_case(self.case)).draw()[0], SEED)
        expected = plain.fetch(plain.run(plain.place(batch)))
        actual = self.engine.fetch(self.engine.run(self.engine.place(batch)))
        errors = [_error(*pair) for pair in zip(actual, expected, strict=True)]
        known = [error for error in errors if error is not None]
        if not known:
            raise Unsupported("for random inputs it gives no finite numbers, so that nothing shows whether it is right")
        self.noted["proof"] = " ".join(f"{number:.7g}" for number in _some(actual))
        return max(known), self._tolerance()

    def _tolerance(self) -> float:
        """As of bf16, whose numbers have as few digits, where weights are quantised: integers are rounded otherwise."""
        if self.file.quantised:
            return TOLERANCE["bf16"]
        return max((TOLERANCE[kind] for kind in self.file.weights_in if kind in TOLERANCE), default=TOLERANCE["fp32"])


def arrays(feeds: tuple[Feed, ...], seed: int) -> dict[str, Any]:
    """An array for each input by its name; the same ones for the same seed."""
    import numpy

    chance = numpy.random.default_rng(seed)
    batch = {}
    for feed in feeds:
        kind = NAMES.get(feed.type, feed.type)
        if feed.below is None:
            batch[feed.name] = chance.standard_normal(feed.shape).astype(kind)
        else:
            batch[feed.name] = numpy.ones(feed.shape, kind) if not feed.below else _whole(chance, feed, kind)
    return batch


def _whole(chance: Any, feed: Feed, kind: str) -> Any:
    return chance.integers(0, feed.below, feed.shape).astype(kind)


def _some(outputs: Any) -> list[float]:
    """Some finite numbers of all outputs, evenly taken: two runtimes that do the same give the same."""
    flat = [number for output in outputs if output.dtype.kind in "fiub" for number in output.reshape(-1).tolist()]
    finite = [float(number) for number in flat if math.isfinite(number)]
    return finite[:: max(1, len(finite) // PROOF_NUMBERS)][:PROOF_NUMBERS]


def _error(actual: Any, expected: Any) -> float | None:
    """The largest difference, relative to the largest value; None where there is no finite number to compare."""
    import numpy

    if expected.dtype.kind not in "fiub" or expected.shape != actual.shape:
        return None if expected.dtype.kind not in "fiub" else float("inf")
    wanted, given = expected.astype("float64"), actual.astype("float64")
    finite = numpy.isfinite(wanted)
    if not finite.any():
        return None
    error = numpy.abs(given[finite] - wanted[finite]).max() / max(1e-6, numpy.abs(wanted[finite]).max())
    return float(error) if numpy.isfinite(error) else float("inf")
