"""What a workload of the user's own is: its code is run here, once, at the sizes that it has if nothing is said."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from mldyno import plugins
from mldyno.messages import SourceDescribed
from mldyno.sources import Source
from mldyno.workloads import Recipe, _own, _own_code
from mldyno.workloads._own_calls import example_here

TRAINS_AND_INFERS = ("train", "infer")


def describe(source: Source) -> SourceDescribed:
    """The source, with all that a plan must know of it."""
    if reader := _own.reader_of(source):
        return SourceDescribed(_read(source, reader))
    sizes = _own_code.sizes_of(_own_code.function_of(source))
    given = _own_code.returned(source, None)
    source = _own_code.located(source)
    usual = {size: default for size, (_, default) in sizes.items()}
    known = replace(source, built=_own_code.digest_of(source), batch=usual.get("batch"), seq=usual.get("seq"))
    if isinstance(given, Recipe):
        known = _of_recipe(known, given)
    else:
        known = described(known, _own.parts_of(given, source.title))
    if fault := _own_code.tree_fault(source):
        raise _own_code.NotUnderstood(fault)
    digest = _own_code.digest_of(source)  # the forward pass may have imported more
    return SourceDescribed(replace(known, digest=digest, name=source.named(digest)))


def described(source: Source, parts: _own.Parts) -> Source:
    """The source with what its parts say of it."""
    framework = _own.framework_of(parts)
    if framework not in plugins.names("frameworks"):
        kind = type(parts.model).__name__
        raise _own_code.NotUnderstood(
            f"{source.title}: {kind} is of no framework that mldyno knows; {example_here(framework)}"
        )
    plugins.framework(framework).start()
    module = sys.modules[framework]
    adapter = _own.adapter_for(framework)
    with _own_code.told_in_a_line(source):
        if _own.is_dataset(parts.inputs):
            batch = source.batch or getattr(parts.inputs, "batch_size", None) or _own_code.USUAL_SIZES["batch"]
            source, parts = replace(source, dataset=True, batch=batch), adapter.with_batch(module, parts, batch)
        known = adapter.describe(module, parts, source.title)
    if known.get("untrained"):
        known["untrained"] = f"{source.function}() returned no targets or loss, and {known['untrained']}"
    return replace(source, framework=framework, **known)


def _read(source: Source, reader: Any) -> Source:
    """A source without code of the user's, with what its reader says of it."""
    if reader.STARTS:
        plugins.framework(reader.STARTS).start()
    known = reader.describe(sys.modules.get(reader.STARTS), source)
    return replace(source, name=source.named(known["digest"]), framework=reader.FRAMEWORKS[0], **known)


def _of_recipe(source: Source, recipe: Recipe) -> Source:
    """A whole recipe says itself what it is, but for its framework: that of its network."""
    batch = recipe.draw()
    parts = _own.Parts(recipe.network, *batch)
    items = next((len(leaf) for leaf in _own.arrays_in(batch)), 1)
    return replace(source, framework=_own.framework_of(parts), modes=TRAINS_AND_INFERS, items=items)
