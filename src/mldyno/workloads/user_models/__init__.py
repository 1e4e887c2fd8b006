"""The user's models: a source becomes a workload, and each of its cases a Recipe. In the worker only.

`describe` calls the user's code once, before anything is planned; `workload_of` makes a workload of what it found.
`code` loads and calls the user's code, `version_trees` keeps the modules of two versions apart and notices
which scripts and settings the code reads, `recipes` takes apart what it returns, `frameworks` knows the arrays and
models of each framework. `hf` and `onnx` read sources without code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from mldyno import trees
from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads import Recipe, Workload
from mldyno.workloads.user_models import code
from mldyno.workloads.user_models.frameworks import adapter_for
from mldyno.workloads.user_models.recipes import (
    NotUnderstood,
    Parts,
    example,
    framework_of,
    is_dataset,
    parts_of,
    restored,
)
from mldyno.workloads.user_models.version_trees import Watch

READ_AS_FILES = ("hf", "onnx")  # kinds of sources without code, each with a module of that name here

Start = Callable[[str], ModuleType]  # starts a framework by its name, and returns its package


def describe(source: Source, start: Start) -> Source:
    """Return the source with all that a plan must know of it, from one call of its code at the default sizes."""
    if source.kind in READ_AS_FILES:
        reader = _reader_of(source)
        known = reader.describe(start(reader.STARTS) if reader.STARTS else None, source)
        return replace(source, name=source.named(known["digest"]), framework=reader.FRAMEWORKS[0], **known)
    with (watch := Watch()):
        sizes = code.default_sizes(source)
        returned = code.call(source, None)
    source = code.located(source)
    imported = code.imported_files(source)
    known = replace(source, batch=sizes.get("batch"), seq=sizes.get("seq"))
    with watch:
        if isinstance(returned, Recipe):
            known = _describe_recipe(known, returned)
        else:
            known = describe_parts(known, parts_of(returned, source.title), start)
    if fault := code.tree_fault(source):
        raise NotUnderstood(fault)
    source = code.with_reads(source, watch)
    built, digest = code.digest_of(source, imported), code.digest_of(source)  # the forward pass may import more
    return replace(known, read=source.read, built=built, digest=digest, name=source.named(digest))


def describe_parts(source: Source, parts: Parts, start: Start) -> Source:
    """Return the source with what its parts show in a forward pass."""
    framework = framework_of(parts)
    if not framework:
        kind = type(parts.model).__name__
        raise NotUnderstood(f"{source.title}: {kind} is of no framework that mldyno knows; {example()}")
    adapter = adapter_for(framework, start(framework))
    with code.reporting_source_line(source):
        if is_dataset(parts.inputs):
            batch = source.batch or getattr(parts.inputs, "batch_size", None) or code.DEFAULT_SIZES["batch"]
            source, parts = replace(source, dataset=True, batch=batch), adapter.with_batch(parts, batch)
        known = adapter.describe(parts, source.title)
    if known.get("untrained"):
        known["untrained"] = f"{source.function}() returned no targets or loss, and {known['untrained']}"
    return replace(source, framework=framework, **known)


def _describe_recipe(source: Source, recipe: Recipe) -> Source:
    """Return the source of a whole recipe, which says all but its framework: that of its network."""
    batch = recipe.draw()
    framework = framework_of(Parts(recipe.network, *batch))
    items = next((len(leaf) for leaf in trees.leaves(batch) if trees.is_array(leaf)), 1)
    return replace(source, framework=framework, modes=("train", "infer"), items=items)


def workload_of(source: Source) -> Workload:
    """Return the workload of a source that was described."""
    build: dict[str, Any] = {source.framework: UserBuild(source)}
    if source.kind in READ_AS_FILES:
        reader = _reader_of(source)
        build = {framework: partial(reader.build, source) for framework in reader.FRAMEWORKS}
    return Workload(
        name=source.name, title=source.title, version=1, item=source.item, batch=source.batch or 0, seq=source.seq,
        params=0, flops=lambda case: 0.0, build=build, modes=source.modes,
        untrained=source.untrained, count=partial(_items, source), own=True, own_data=source.dataset,
    )  # fmt: skip


def _reader_of(source: Source) -> Any:
    return import_module(f"mldyno.workloads.user_models.{source.kind}")


def _items(source: Source, case: Case) -> int:
    """Return the items of a step: they grow with the batch, and tokens with the sequence."""
    items = float(source.items)
    if source.batch and case.batch:
        items *= case.batch / source.batch
    if source.seq and case.seq and source.item == "token":
        items *= case.seq / source.seq
    if case.mode == "infer":
        items += source.decoded * (case.batch or source.batch or 1)
    return max(1, round(items))


@dataclass(frozen=True)
class UserBuild:
    """The build function of a source: makes a recipe with the user's code as it was when the run began."""

    source: Source

    def __call__(self, framework: ModuleType, case: Case) -> Recipe:
        source, adapter = self.source, adapter_for(self.source.framework, framework)
        with restored(adapter.settings()) as changed:
            returned = code.call(source, case)
        if source.kind in ("file", "module"):  # a model that lives in this process has no file
            code.check_unchanged(source, lambda: code.digest_of(source))
        if isinstance(returned, Recipe):
            return returned
        parts = parts_of(returned, source.title)
        if adapter.trains_in_place:
            code.check_fresh(source, parts.model)
        if source.dataset:
            parts = adapter.with_batch(parts, case.batch)
        return adapter.recipe(parts, source, case, changed)

    @property
    def loads(self) -> bool:
        """Return whether placement `loader` can read from the user's data set."""
        return self.source.dataset
