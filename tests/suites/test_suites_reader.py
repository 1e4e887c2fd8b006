"""A suite file is read strictly: what it says is what is meant, and a mistake is one line that names it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from mldyno import interpreters, suites
from mldyno.analysis.outcomes import outcomes
from mldyno.errors import MldynoError, UsageError
from mldyno.store.figures import newest
from mldyno.suites.reader import KEYS, Values, read

CASES = "[[cases]]\nworkload = 'mlp'\n"


def written(folder: Path, **files: str) -> str:
    """Suite files by the names of their keywords; gives the path of the first."""
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
    return str(folder / f"{next(iter(files))}.toml")


def test_every_setting_is_read_into_si_units(tmp_path: Path) -> None:
    text = "budget = '2m'\ntarget = '5%'\nrepeats = 2\nsteps = 10\ntimeout = 90\ndata = 'real'\nby = 'batch-size'\n"
    assert read(written(tmp_path, own=text + CASES)).settings == {
        "budget": 120.0, "target": 0.05, "repeats": 2, "steps": 10, "timeout": 90.0, "data": "real", "by": "batch",
    }  # fmt: skip


def test_axes_are_read_as_on_the_command_line_and_a_value_is_a_list_of_one(tmp_path: Path) -> None:
    text = CASES + "mode = 'training'\nbatch-size = [1, 2]\ndevice = ['cuda', 'all']\ncompile = [true, 'no']\n"
    assert read(written(tmp_path, own=text)).cases == (
        {"workload": ("mlp",), "mode": ("train",), "batch": (1, 2), "device": ("cuda:0", "all"),
         "compile": (True, False)},
    )  # fmt: skip


def test_a_path_to_include_is_seen_from_the_file_that_includes_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    written(tmp_path / "sub", inner=CASES, beside="include = ['inner.toml', 'quick']")
    suite = read(written(tmp_path, outer="include = ['sub/beside.toml']"))
    assert [one.file for one in suite.included] == ["beside.toml"]
    assert [one.file for one in suite.included[0].included] == ["inner.toml", "quick.toml"]


def test_suites_that_include_each_other_are_told_as_a_circle(tmp_path: Path) -> None:
    path = written(tmp_path, a="include = ['b.toml']", b="include = ['c.toml']", c=f"include = ['b.toml']\n{CASES}")
    with pytest.raises(UsageError, match=r"^suite b.toml includes itself: b.toml -> c.toml -> b.toml\.$"):
        read(path)


def test_a_suite_that_is_included_twice_is_no_circle(tmp_path: Path) -> None:
    path = written(tmp_path, a="include = ['b.toml', 'c.toml']", b="include = ['c.toml']", c=CASES)
    assert [one.file for one in read(path).included] == ["b.toml", "c.toml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exclud = 1\n" + CASES, "unknown key in suite own.toml 'exclud'. Did you mean 'exclude'?"),
        ("budget = true\n" + CASES, "suite own.toml: budget must be a number"),
        ("timeout = [1]\n" + CASES, "suite own.toml: timeout must be a number"),
        ("timeout = 'soon'\n" + CASES, "suite own.toml: 'soon' is not a duration"),
        ("steps = '10'\n" + CASES, "suite own.toml: steps must be a whole number."),
        ("data = 'syntetic'\n" + CASES, "suite own.toml: unknown data 'syntetic'. Did you mean 'synthetic'?"),
        ("data = 1\n" + CASES, "suite own.toml: data must be a word."),
        ("by = 'devise'\n" + CASES, "suite own.toml: unknown axis 'devise'. Did you mean 'device'?"),
        ("include = 'quick'\n" + CASES, "suite own.toml: include must be a list of suites"),
        ("include = [1]\n" + CASES, "suite own.toml: include must be a list of suites"),
        ("include = ['quik']\n" + CASES, "suite own.toml: unknown suite to include 'quik'. Did you mean 'quick'?"),
        ("include = ['none.toml']\n" + CASES, "none.toml: No such file or directory."),
        ("include = ['bad.toml']\n" + CASES, "suite bad.toml: invalid batch 'many'"),
        ("include = []\n", "suite own.toml: it needs at least one [[cases]] table, or an include."),
        ("cases = ['mlp']\n", "suite own.toml: cases must be tables; begin each with a line [[cases]]."),
        ("exclude = 3\n" + CASES, "suite own.toml: exclude must be tables; begin each with a line [[exclude]]."),
        (CASES + "mode = 'trian'\n", "suite own.toml: unknown mode 'trian'. Did you mean 'train'?"),
        (CASES + "device = 'al'\n", "suite own.toml: unknown device 'al'. Did you mean 'all'?"),
        (CASES + "batch = 1\nbatch-size = 2\n", "suite own.toml: batch-size means batch, which a [[cases]]"),
        (CASES + "[[exclude]]\nmoed = 1\n", "suite own.toml: unknown key in [[exclude]] 'moed'. Did you mean 'mode'"),
        (CASES + "[[exclude]]\nbatch = 1.5\n", "suite own.toml: batch must be a value or a list of values."),
        (CASES + "[[exclude]]\n", "suite own.toml: an [[exclude]] table needs at least one axis."),
        (CASES + "[[exclude]]\ndevice = 'all'\n", "suite own.toml: [[exclude]] drops what it names"),
        (CASES + "[score]\nversion = 1\n", "suite own.toml: score must be a table of version, machine and rates"),
        (CASES + "[score]\nversion = 1\nmachine = 'm'\nrates = [{workload = 'mlp', rate = 0}]\n",
         "suite own.toml: the rate of a score must be a number over 0"),
        (CASES + "[score]\nversion = 1\nmachine = 'm'\nrates = [{mode = 'train', rate = 1}]\n",
         "suite own.toml: a [[cases]] table needs a workload"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_says_where_and_what_was_meant(text: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, own=text, bad=CASES + "batch = 'many'\n")
    with pytest.raises(MldynoError) as told:
        read(path)
    assert said in str(told.value)
    assert "\n" not in str(told.value)


# -- the suites that ship ------------------------------------------------------------------------


def test_the_published_comparisons_ship_as_suites() -> None:
    wanted = {"m2-vs-intel", "apple-silicon-bert", "m1-vs-rtx", "m4-gpu", "m1-chips", "quick", "full"}
    assert wanted <= set(suites.names())


@pytest.mark.parametrize("name", suites.names())
def test_every_shipped_suite_is_read_and_begins_with_what_it_is(name: str) -> None:
    assert read(name)
    assert 20 < len(suites.title(name)) <= 100


def test_full_includes_every_other_suite_and_every_workload_on_every_device() -> None:
    full = read("full")
    assert {one.file for one in full.included} == {f"{name}.toml" for name in suites.names() if name != "full"}
    assert full.cases == ({"workload": ("all",), "device": ("all",)},)


def points(axes: Values, names: tuple[str, ...]) -> set[tuple[object, ...]]:
    """All combinations of the values on these axes; both modes where none is named."""
    values = {"mode": ("train", "infer"), "seq": (None,), **axes}
    return set(itertools.product(*(values[name] for name in names)))


@pytest.mark.parametrize("name", ["apple-silicon-bert", "m1-chips"])
def test_a_suite_holds_every_case_whose_steps_were_published(name: str) -> None:
    names = ("workload", "mode", "batch", "seq", "placement")
    ours = set().union(*(points(axes, names) for axes in read(name).cases if axes["workload"] != ("venv-ppo",)))
    shipped = outcomes([record for record in newest() if record.run.suite == name])
    theirs = {
        tuple(getattr(one.case, axis) for axis in names)
        for one in shipped
        if one.figure("step") is not None or one.status == "oom"
    }
    assert ours == theirs


def test_the_sizes_of_bert_go_from_small_to_large() -> None:
    sizes = [axes["batch"][0] * axes["seq"][0] for axes in read("apple-silicon-bert").cases]
    assert sizes == sorted(sizes)


def test_a_suite_for_every_device_says_all() -> None:
    for name in suites.names():
        for axes in read(name).cases:
            assert axes.get("device", ("cpu",)) in (("cpu",), ("all",))


def test_settings_are_all_documented_keys() -> None:
    settings = {"budget", "target", "repeats", "steps", "timeout", "limit", "data", "by", "energy"}
    assert set(KEYS) == {*settings, "include", "cases", "exclude", "score"}


SUITES_WITH_AN_INTERPRETER = (
    CASES + "python = '{}'\n",
    CASES + "python = ['3.11.7', '{}']\n",
    CASES + "[[exclude]]\npython = '{}'\n",
    CASES + "[score]\nversion = 1\nmachine = 'm'\nrates = [{{workload = 'mlp', rate = 1.0, python = '{}'}}]\n",
)


@pytest.mark.parametrize("text", SUITES_WITH_AN_INTERPRETER, ids=["a case", "a list", "an exclude", "a score"])
def test_no_interpreter_is_started_unless_the_suite_is_trusted(tmp_path: Path, text: str) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    tool.chmod(0o755)
    for path in (tool, "./tool", "python3"):
        for files in ({"own": text.format(path)}, {"own": "include = ['more.toml']\n", "more": text.format(path)}):
            with pytest.raises(UsageError, match=r"allow it with --trust, if you trust both|not the name of an interp"):
                read(written(tmp_path, **files))
    assert not (tmp_path / "ran").exists()
    read(written(tmp_path, own=text.format("3.11.7+torch2.13.0")))


def test_a_trusted_suite_names_an_interpreter_as_seen_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "python"
    tool.write_text("#!/bin/sh\necho '[[3, 12, 9], {}]'\n")
    tool.chmod(0o755)
    suite = read(written(tmp_path, own=CASES + "python = 'bin/python'\n"), trust=True)
    assert suite.cases[0]["python"] == ("3.12.9",)
    assert interpreters.path_of("3.12.9") == str(tool)


@pytest.mark.parametrize("rates", ["5", "'x'", "[5]", "{a = 1}", "true", "[[1]]"])
def test_rates_of_a_score_that_are_no_tables_are_one_line(tmp_path: Path, rates: str) -> None:
    text = CASES + f"[score]\nversion = 1\nmachine = 'm'\nrates = {rates}\n"
    with pytest.raises(UsageError, match="score must be a table of version, machine and rates"):
        read(written(tmp_path, own=text))
