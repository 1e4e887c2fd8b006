"""Two versions of one repository beside each other: each imports its own tree, however Python finds the package."""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mldyno import plugins, sources
from mldyno.axes import Case
from mldyno.frameworks.torch.program import TorchProgram
from mldyno.plugins import start_framework
from mldyno.runner.describing import at_revision, separate_trees
from mldyno.sources import Source
from mldyno.worker import checks
from mldyno.workloads.user_models import code, describe, version_trees
from mldyno.workloads.user_models.recipes import NotUnderstood

GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org")
BENCH = "import torch\nfrom own_gpt.model import WIDTH, net\ndef build(): return net(), torch.randn(2, 4)\n"
MODEL = "import torch\nWIDTH = 3\ndef net(): return torch.nn.Linear(4, WIDTH)\n"
LAZY = """
import torch
class Net(torch.nn.Linear):
    def forward(self, x):
        {imports}
        return super().forward(x) * WIDTH
WIDTH = 0
def net(): return Net(4, 1, bias=False)
"""
FINDER = """
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
class Editable:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname == "own_gpt" and {regular}:
            return spec_from_file_location(fullname, Path({package!r}) / "__init__.py")
        if fullname.rpartition(".")[0] == "own_gpt":
            return PathFinder.find_spec(fullname, path=[{package!r}])
class Namespace:
    @classmethod
    def hook(cls, path):
        if path == "__editable__.own_gpt.__path_hook__":
            return cls
        raise ImportError
    @classmethod
    def find_spec(cls, fullname, target=None):
        if fullname == "own_gpt":
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [{package!r}, "__editable__.own_gpt.__path_hook__"]
            return spec
sys.meta_path.append(Editable)
if not {regular}:
    sys.path_hooks.append(Namespace.hook)
    sys.path.append("__editable__.own_gpt.__path_hook__")
"""


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test imports as a fresh process does."""
    modules, path, finders, hooks = {*sys.modules}, list(sys.path), list(sys.meta_path), list(sys.path_hooks)
    monkeypatch.setattr(code, "_LOADED", {})
    monkeypatch.setattr(version_trees, "FINDER", version_trees.Finder())
    monkeypatch.setattr(sources, "_KNOWN", {})
    monkeypatch.setenv("PYTHONPATH", "")
    yield
    for name in {*sys.modules} - modules:
        if name.partition(".")[0] in ("gpt", "bench", "own_gpt", "own_compiled"):
            del sys.modules[name]
    sys.path[:], sys.meta_path[:], sys.path_hooks[:] = path, finders, hooks
    sys.path_importer_cache.clear()
    os.environ.pop(version_trees.ENVIRONMENT, None)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a file under test beside the package that it imports."""
    top = tmp_path / "repository"
    (top / "bench").mkdir(parents=True)
    (top / "own_gpt").mkdir()
    (top / "bench" / "gpt.py").write_text(BENCH)
    (top / "own_gpt" / "__init__.py").write_text("")
    (top / "own_gpt" / "model.py").write_text(MODEL)
    subprocess.run([*GIT, "init", "-q", str(top)], check=True)
    committed(top)
    return top


def committed(top: Path) -> None:
    for words in (["add", "."], ["commit", "-qm", "as it was"]):
        subprocess.run([*GIT, "-C", str(top), *words], check=True)


def changed(top: Path, package: str = "own_gpt") -> None:
    """The change: the layer is wider."""
    model = top / package / "model.py"
    later = model.stat().st_mtime + 10  # Python takes a file of the same size and second for the one that it compiled
    model.write_text(model.read_text().replace("WIDTH = 3", "WIDTH = 5"))
    os.utime(model, (later, later))


def both(path: Path | str) -> tuple[Source, Source]:
    """The source as it was at HEAD, and as it is now, as a run with --against knows them."""
    now = describe(sources.read(str(path)), start_framework)
    old = describe(replace(at_revision(now, "HEAD"), version="HEAD"), start_framework)
    now = replace(now, other=old.root, version=sources.NOW)
    for source in (old, now):
        sources.register(source)
    return old, now


def program_of(source: Source) -> TorchProgram:
    case = Case(source.name, batch=source.batch, mode="infer")
    start_framework("torch")
    program = TorchProgram(plugins.framework("torch"), case, plugins.workload(source.name).build["torch"], None)
    program.run(1)
    checks.check_tree(case)
    return program


def widths(*versions: Source) -> list[int]:
    return [program_of(source).network.out_features for source in versions]


# -- how a package is found ------------------------------------------------------------------------


def by_search_path(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.append(str(top))


def by_a_link(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (top.parent / "link").symlink_to(top)
    sys.path.append(str(top.parent / "link"))


def by_its_own_file(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (top / "bench" / "gpt.py").write_text(f"import sys\nsys.path.insert(0, {str(top)!r})\n{BENCH}")
    committed(top)


def by_its_own_file_from_where_the_user_stands(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(top)
    (top / "bench" / "gpt.py").write_text(f"import sys\nsys.path.insert(0, '.')\n{BENCH}")
    committed(top)


def by_a_finder(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exec(FINDER.format(regular=True, package=str(top / "own_gpt")), {})


def by_a_finder_as_a_namespace(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (top / "own_gpt" / "__init__.py").unlink()
    committed(top)
    monkeypatch.chdir(top)
    exec(FINDER.format(regular=False, package=str(top / "own_gpt")), {})


def as_a_namespace(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (top / "own_gpt" / "__init__.py").unlink()
    committed(top)
    sys.path.append(str(top))


def by_links_to_each_file(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As setuptools does it in its strict mode."""
    links = top / "build" / "__editable__.own_gpt" / "own_gpt"
    links.mkdir(parents=True)
    for file in (top / "own_gpt").iterdir():
        (links / file.name).symlink_to(file)
    (top / ".gitignore").write_text("build\n")
    committed(top)
    sys.path.append(str(links.parent))


def by_an_absolute_link_in_the_repository(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (top / "bench" / "own_gpt").symlink_to(top / "own_gpt")
    committed(top)


def imported_before(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a .pth file or a sitecustomize may do it."""
    sys.path.append(str(top))
    __import__("own_gpt.model")


LAYOUTS = (by_search_path, by_a_link, by_its_own_file, by_its_own_file_from_where_the_user_stands, by_a_finder,
           by_a_finder_as_a_namespace, as_a_namespace, by_links_to_each_file, by_an_absolute_link_in_the_repository,
           imported_before)  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_version_imports_its_own_tree(
    layout: Callable[[Path, pytest.MonkeyPatch], None], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout(repository, monkeypatch)
    changed(repository)
    old, now = both(repository / "bench" / "gpt.py")
    assert old.name != now.name
    assert sources.family(old.name) == sources.family(now.name) == "gpt.py"
    assert widths(old, now, old) == [3, 5, 3]


def test_a_package_in_src_is_of_its_own_tree_too(repository: Path) -> None:
    (repository / "src").mkdir()
    (repository / "own_gpt").rename(repository / "src" / "own_gpt")
    committed(repository)
    sys.path.append(str(repository / "src"))
    changed(repository, "src/own_gpt")
    assert widths(*both(repository / "bench" / "gpt.py")) == [3, 5]


def test_a_module_that_is_named_is_of_its_own_tree_wherever_the_user_stands(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sys.path.append(str(repository))
    changed(repository)
    old, now = both("bench.gpt:build")
    assert now.root == str(repository)
    assert widths(old, now) == [3, 5]
    monkeypatch.chdir(repository)
    assert describe(sources.read("bench.gpt:build"), start_framework).name == now.name


def test_a_module_that_only_the_older_version_has_is_found(repository: Path) -> None:
    (repository / "own_gpt" / "model.py").write_text("import torch\nfrom own_before import WIDTH, net\n")
    (repository / "own_before.py").write_text(MODEL)
    committed(repository)
    (repository / "own_before.py").unlink()
    (repository / "own_gpt" / "model.py").write_text(MODEL.replace("3", "5"))
    sys.path.append(str(repository))
    assert widths(*both(repository / "bench" / "gpt.py")) == [3, 5]
    sys.modules.pop("own_before", None)


@pytest.mark.parametrize(
    "imports", ["from own_gpt.lazy import WIDTH", "WIDTH = __import__('importlib').import_module('own_gpt.lazy').WIDTH"]
)
def test_what_is_imported_while_a_step_runs_is_of_its_own_tree_in_turns_too(imports: str, repository: Path) -> None:
    (repository / "own_gpt" / "model.py").write_text(LAZY.format(imports=imports))
    (repository / "own_gpt" / "lazy.py").write_text("WIDTH = 2")
    committed(repository)
    (repository / "own_gpt" / "lazy.py").write_text("WIDTH = 4")
    sys.path.append(str(repository))
    versions = both(repository / "bench" / "gpt.py")
    assert versions[0].name != versions[1].name
    programs = [program_of(source) for source in versions]
    for _ in range(2):
        for source, program, width in zip(versions, programs, (2, 4), strict=True):
            code.activate(source)
            program.network.weight.data.fill_(1.0)
            assert program.network(torch.ones(1, 4)).item() == 4 * width


def test_two_copies_of_a_folder_without_git_each_import_their_own(tmp_path: Path) -> None:
    for name, width in (("older", 3), ("newer", 5)):
        (tmp_path / name / "bench").mkdir(parents=True)
        (tmp_path / name / "own_gpt").mkdir()
        (tmp_path / name / "bench" / "gpt.py").write_text(BENCH)
        (tmp_path / name / "own_gpt" / "model.py").write_text(MODEL.replace("3", str(width)))
    sys.path.append(str(tmp_path / "newer"))
    pair = separate_trees(*(sources.read(str(tmp_path / name / "bench" / "gpt.py")) for name in ("newer", "older")))
    now, old = (describe(source, start_framework) for source in pair)
    for source in (now, old):
        sources.register(source)
    assert widths(old, now) == [3, 5]


def test_two_files_of_one_folder_share_what_they_import(tmp_path: Path) -> None:
    for name in ("gpt.py", "old.py"):
        (tmp_path / name).write_text(MODEL + "def build(): return net(), torch.ones(2, 4)\n")
    pair = separate_trees(*(sources.read(str(tmp_path / name)) for name in ("gpt.py", "old.py")))
    assert [source.other for source in pair] == ["", ""]


# -- what is refused -------------------------------------------------------------------------------


def test_a_module_that_git_does_not_know_is_refused_by_name(repository: Path) -> None:
    (repository / "own_gpt" / "__init__.py").write_text("from own_gpt._version import version\n")
    (repository / ".gitignore").write_text("_version.py\n")
    committed(repository)
    (repository / "own_gpt" / "_version.py").write_text("version = 1")
    sys.path.append(str(repository))
    with pytest.raises(NotUnderstood) as error:
        both(repository / "bench" / "gpt.py")
    assert str(error.value) == (
        "gpt.py (HEAD): own_gpt._version (own_gpt/_version.py) is in the other version's tree only; "
        "put it into a second checkout, and name the file there with --against"
    )


@pytest.mark.parametrize("caught", ["ImportError", "Exception"])
def test_code_that_does_without_a_module_is_refused_too(caught: str, repository: Path) -> None:
    model = f"try:\n    from own_gpt import fast\nexcept {caught}:\n    fast = None\n" + MODEL
    (repository / "own_gpt" / "model.py").write_text(model)
    committed(repository)
    (repository / "own_gpt" / "fast.py").write_text("")
    sys.path.append(str(repository))
    with pytest.raises(NotUnderstood, match=r"own_gpt\.fast \(own_gpt/fast\.py\) is in the other version's tree only"):
        both(repository / "bench" / "gpt.py")


def test_a_new_module_that_the_older_version_does_not_ask_for_is_imported(repository: Path) -> None:
    (repository / "own_gpt" / "model.py").write_text("from own_gpt.fast import WIDTH, net\n")
    (repository / "own_gpt" / "fast.py").write_text(MODEL.replace("3", "5"))
    sys.path.append(str(repository))
    assert widths(*both(repository / "bench" / "gpt.py")) == [3, 5]


def test_a_folder_without_code_is_no_module_of_a_version(repository: Path) -> None:
    model = "try:\n    import own_runs\nexcept ImportError:\n    own_runs = None\n" + MODEL
    (repository / "own_gpt" / "model.py").write_text(model)
    committed(repository)
    (repository / "own_runs").mkdir()
    changed(repository)
    sys.path.append(str(repository))
    assert widths(*both(repository / "bench" / "gpt.py")) == [3, 5]
    sys.modules.pop("own_runs", None)


def test_a_compiled_module_of_the_repository_is_refused_by_name(repository: Path) -> None:
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    compiled = next(Path(path) for path in map(str, Path(os.__file__).parent.glob("lib-dynload/_bisect*.so")))
    (repository / f"_bisect{suffix}").write_bytes(compiled.read_bytes())
    (repository / "own_gpt" / "model.py").write_text("import _bisect\n" + MODEL)
    (repository / ".gitignore").write_text("*.so\n")
    committed(repository)
    sys.path.insert(0, str(repository))
    known = sys.modules.pop("_bisect", None)
    try:
        source = describe(sources.read(str(repository / "bench" / "gpt.py")), start_framework)
        other = str(repository.parent / "other")
        said = rf"gpt\.py \(now\): _bisect \(_bisect{suffix}\) is compiled, for one version only; measure each version "
        assert code.tree_fault(replace(source, other=other, version="now"))
        with pytest.raises(NotUnderstood, match=said.replace("now", "HEAD")):
            both(repository / "bench" / "gpt.py")
    finally:
        sys.modules["_bisect"] = known or sys.modules["_bisect"]


def test_a_module_that_code_loads_from_the_other_tree_by_its_path_is_seen(repository: Path) -> None:
    load = f"""
import importlib.util, sys
def load():
    spec = importlib.util.spec_from_file_location("own_gpt.stray", {str(repository / "own_gpt" / "stray.py")!r})
    sys.modules["own_gpt.stray"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
"""
    (repository / "own_gpt" / "model.py").write_text(load + MODEL.replace("def net(): ", "def net(): load(); "))
    committed(repository)
    (repository / "own_gpt" / "stray.py").write_text("")
    sys.path.append(str(repository))
    with pytest.raises(NotUnderstood, match=r"own_gpt\.stray \(own_gpt/stray\.py\) was loaded from the other version"):
        both(repository / "bench" / "gpt.py")


def test_a_module_of_the_other_tree_that_is_loaded_in_a_step_makes_the_case_wrong(repository: Path) -> None:
    changed(repository)
    sys.path.append(str(repository))
    old, _ = both(repository / "bench" / "gpt.py")
    program_of(old)
    code.activate(old)
    stray: Any = type(sys)("own_gpt.stray")
    stray.__file__ = str(repository / "own_gpt" / "model.py")
    sys.modules["own_gpt.stray"] = stray
    with pytest.raises(checks.Wrong, match=r"gpt\.py \(HEAD\): own_gpt\.stray \(own_gpt/model\.py\) was loaded from"):
        checks.check_tree(Case(old.name))


# -- what is not the repository's code -------------------------------------------------------------


def test_an_environment_within_the_repository_is_not_its_code(repository: Path) -> None:
    packages = repository / ".venv" / "lib" / "python3.11" / "site-packages"
    (packages / "own_compiled").mkdir(parents=True)
    (packages / "own_compiled" / "__init__.py").write_text("A = 1")
    (repository / "own_gpt" / "model.py").write_text("import own_compiled\n" + MODEL)
    (repository / ".gitignore").write_text(".venv\n")
    committed(repository)
    changed(repository)
    sys.path += [str(packages), str(repository)]
    old, now = both(repository / "bench" / "gpt.py")
    assert widths(old, now) == [3, 5]
    (packages / "own_compiled" / "__init__.py").write_text("A = 2")
    assert code.digest_of(now) == now.built


def test_what_another_package_generates_in_the_repository_is_not_its_code(repository: Path) -> None:
    generated: Any = type(sys)("torch.generated")
    generated.__file__ = str(repository / "bench" / "gpt.py")
    sys.modules["torch.generated"] = generated
    try:
        assert version_trees.file_in("torch.generated", str(repository)) == ""
    finally:
        del sys.modules["torch.generated"]


# -- the hash --------------------------------------------------------------------------------------


def name_of(path: Path) -> str:
    """What a fresh process would call the workload."""
    for loaded in code._LOADED.values():
        if loaded.active:
            loaded.deactivate()
    code._LOADED.clear()
    return describe(sources.read(str(path)), start_framework).name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_versions_of_a_package_are_two_workloads(
    layout: Callable[[Path, pytest.MonkeyPatch], None], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout(repository, monkeypatch)
    first = name_of(repository / "bench" / "gpt.py")
    assert name_of(repository / "bench" / "gpt.py") == first
    changed(repository)
    assert name_of(repository / "bench" / "gpt.py") != first


def test_what_is_imported_only_in_training_is_a_part_of_the_version(repository: Path) -> None:
    loss = "def loss(output, targets):\n    from own_gpt import loss\n    return loss.loss(output)\n"
    (repository / "bench" / "gpt.py").write_text(
        loss + BENCH.replace("torch.randn(2, 4)", "torch.randn(2, 4), torch.ones(2), loss")
    )
    (repository / "own_gpt" / "loss.py").write_text("def loss(output): return output.mean()")
    sys.path.append(str(repository))
    first = name_of(repository / "bench" / "gpt.py")
    (repository / "own_gpt" / "loss.py").write_text("def loss(output): return 2 * output.mean()")
    assert name_of(repository / "bench" / "gpt.py") != first


def test_what_is_not_imported_is_no_part_of_the_version(repository: Path) -> None:
    sys.path.append(str(repository))
    first = name_of(repository / "bench" / "gpt.py")
    (repository / "own_gpt" / "other.py").write_text("A = 1")
    (repository / "own_gpt" / "data.txt").write_text("A = 1")
    assert name_of(repository / "bench" / "gpt.py") == first


# -- processes that code starts --------------------------------------------------------------------


def test_processes_that_code_starts_import_from_the_same_tree(repository: Path) -> None:
    sys.path.append(str(repository))
    changed(repository)
    old, now = both(repository / "bench" / "gpt.py")
    for source, width in ((old, 3), (now, 5)):
        code.activate(source)
        words = [sys.executable, "-c", "import own_gpt.model; print(own_gpt.model.WIDTH)"]
        out = subprocess.run(words, capture_output=True, text=True, check=True, cwd="/").stdout
        assert int(out) == width
        started = "from mldyno.workloads.user_models.version_trees import *; use_trees_of_parent(); print(FINDER.own)"
        out = subprocess.run([sys.executable, "-c", started], capture_output=True, text=True, check=True).stdout
        assert out.strip() == source.root
