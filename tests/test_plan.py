"""Flags and suites are expanded into cases before anything runs; what is wrong is said at once."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mldyno import api, plugins, suites
from mldyno import plan as plans
from mldyno.axes import AXIS
from mldyno.errors import MldynoError, UsageError
from mldyno.plan import expand
from mldyno.workloads import bert


def test_axes_multiply() -> None:
    plan = expand(["mlp"], {"mode": ["train", "infer"], "batch": ["8", "16"], "device": ["cpu", "mps"]})
    assert len(plan.cases) == 8
    assert len({case.id for case in plan.cases}) == 8


def test_a_workload_brings_its_own_sizes() -> None:
    assert {case.batch for case in expand(["mlp"], {}).cases} == {128}
    both = expand(["mlp", "bert-tiny"], {"seq": ["64"]}).cases
    assert {(case.workload, case.seq) for case in both} == {("mlp", None), ("bert-tiny", 64)}


def test_a_length_for_what_has_no_sequences_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no sequences in mlp; omit --seq\."):
        expand(["mlp"], {"seq": ["64"]})


LOADED = "mnist-cnn/train/torch/cpu/fp32/b64/loader"


def test_what_is_asked_of_a_loader_means_batches_from_the_data_set() -> None:
    for name in ("loader_workers", "loader-workers", "num_workers"):
        plan = expand(["mnist-cnn"], {"mode": ["train"], name: ["0", "2"]})
        assert [case.id for case in plan.cases] == [LOADED, f"{LOADED}/lw2"]
    plan = expand(["mnist-cnn"], {"mode": ["train"], "pin_memory": ["no", "yes"]})
    assert [case.id for case in plan.cases] == [LOADED, f"{LOADED}/pinned"]


def test_without_workers_nothing_is_prefetched_and_without_a_loader_nothing_is_asked_of_it() -> None:
    axes = {"mode": ["train"], "loader_workers": ["0", "2"], "prefetch": ["2", "4"]}
    assert [case.id for case in expand(["mnist-cnn"], axes).cases] == [
        LOADED, f"{LOADED}/lw2/prefetch2", f"{LOADED}/lw2/prefetch4"
    ]  # fmt: skip
    both = expand(["mnist-cnn"], {"mode": ["train"], "loader_workers": ["2"], "placement": ["device", "loader"]})
    assert [case.id for case in both.cases] == ["mnist-cnn/train/torch/cpu/fp32/b64/device", f"{LOADED}/lw2"]
    mixed = expand(["mlp", "mnist-cnn"], {"mode": ["train"], "loader_workers": ["2"]})
    assert [case.id for case in mixed.cases] == ["mlp/train/torch/cpu/fp32/b128/device", f"{LOADED}/lw2"]


@pytest.mark.parametrize(
    ("workload", "axes", "said"),
    [
        ("mlp", {"loader_workers": ["2"]}, "--loader-workers is about batches from a data set on disk; there is no "
                                           "data set for mlp."),
        ("mnist-cnn", {"loader_workers": ["2"], "placement": ["device"]}, "on disk; write --placement loader."),
        ("mnist-cnn", {"pin_memory": ["yes"], "placement": ["host"]}, "--pin-memory is about batches from a data set"),
        ("mnist-cnn", {"prefetch": ["4"]}, "--prefetch counts what each loader worker holds ready; give "
                                           "--loader-workers 1 or more too."),
        ("mnist-cnn", {"prefetch": ["4"], "loader_workers": ["0"]}, "--prefetch counts what each loader worker"),
        ("mnist-cnn", {"loader_workers": ["-1"]}, "invalid loader workers '-1'; write a whole number such as 2."),
        ("mnist-cnn", {"prefetch": ["0"], "loader_workers": ["1"]}, "invalid prefetch '0'"),
    ],
)  # fmt: skip
def test_what_no_loader_could_do_is_refused(workload: str, axes: dict[str, list[str]], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        expand([workload], axes)


def test_a_suite_that_asks_something_of_a_loader_where_there_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("[[cases]]\nworkload = 'mnist-cnn'\nplacement = 'device'\nloader_workers = 2\n")
    with pytest.raises(UsageError, match="--loader-workers is about batches from a data set"):
        expand([str(path)], {})


@pytest.mark.parametrize(
    ("word", "axes", "meant"),
    [("32", {"batch": ["16"]}, "--batch 16,32"), ("32", {}, "--batch 32"), ("128", {"seq": ["64"]}, "--seq 64,128"),
     ("infer", {"mode": ["train"]}, "--mode train,infer"), ("gpu", {"device": ["cpu"]}, "--device cpu,gpu")],
)  # fmt: skip
def test_a_value_among_the_targets_is_one_that_lost_its_comma(
    word: str, axes: dict[str, list[str]], meant: str
) -> None:
    with pytest.raises(UsageError, match=rf"'{word}' is no workload; .* with commas: {meant}\."):
        expand(["mlp", word], axes)


def test_a_flag_overrides_what_a_suite_says() -> None:
    plan = expand(["quick"], {"batch": ["2"]}, {"budget": 1.0})
    assert {case.batch for case in plan.cases} == {2}
    assert plan.budget == 1.0
    assert plan.suite == "quick"


def test_the_same_case_named_twice_runs_once() -> None:
    assert len(expand(["mlp", "mlp"], {"mode": ["infer", "infer"]}).cases) == 1


def test_a_plan_survives_being_written_down() -> None:
    plan = expand(["quick"], {}, {"repeats": 3})
    assert plans.from_text(plan.text()) == plan != expand(["quick"], {})


def test_commands_have_dashes_between_them_and_are_compared_with_each_other() -> None:
    plan = plans.for_command(["sleep", "0.2", "--", "sleep", "0.1"])
    assert plan.commands == (("sleep", "0.2"), ("sleep", "0.1"))
    assert [case.workload for case in plan.cases] == ["sleep 0.2", "sleep 0.1"]
    assert plan.by == "workload"
    assert [plan.command_of(case) for case in plan.cases] == list(plan.commands)
    assert plans.from_text(plan.text()) == plan
    alone = plans.for_command(["sleep", "0.2"])
    assert (alone.by, alone.command_of(alone.cases[0])) == (None, ("sleep", "0.2"))
    assert expand(["mlp"], {}).command_of(expand(["mlp"], {}).cases[0]) == ()


def test_a_plan_of_before_commands_could_be_several_is_read() -> None:
    plan = plans.for_command(["git", "log"])
    for words in ([], ["git", "log"]):
        before = json.loads(plan.text()) | {"format": 2, "command": words}
        del before["commands"]
        assert plans.from_text(json.dumps(before)) == replace(plan, commands=(tuple(words),) if words else ())


def test_the_secrets_of_no_command_are_written_down() -> None:
    plan = plans.for_command(["a", "--token", "hunter2x", "--", "b", "--password=hunter3x"])
    assert "hunter" not in plan.text()
    assert plans.from_text(plan.text()).masked
    assert plans.from_text(plan.text()).text() == plan.text(), "so that it is found again"


@pytest.mark.parametrize("name", suites.names())
def test_every_shipped_suite_expands_and_begins_with_what_it_is(name: str) -> None:
    assert expand([name], {}).cases
    assert suites.title(name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[cases]]\nworkload = 'mlp'\ncolour = 'red'", r"unknown key in \[\[cases\]\]"),
        ("colour = 1\n[[cases]]\nworkload = 'mlp'", "unknown key in suite own.toml 'colour'"),
        ("[[cases]]\nbatch = 4", "needs a workload"),
        ("[[cases]]\nworkload = 'mpl'", "Did you mean 'mlp'"),
        ("[[cases]]\nworkload = 'mlp'\nbatch = 1.5", "a value or a list"),
        ("[[cases]]\nworkload = 'mlp'\nbatch = -4", "invalid batch"),
        ("budget = '3 lightyears'\n[[cases]]\nworkload = 'mlp'", "not a duration"),
        ("repeats = 'many'\n[[cases]]\nworkload = 'mlp'", "whole number"),
        ("cases = 3", r"cases must be tables"),
        ("", r"needs at least one \[\[cases\]\]"),
        ("[[cases]]\nworkload = 'mlp'\nframework = 'troch'", "unknown framework 'troch'. Did you mean 'torch'"),
        ("not toml at all", "not TOML"),
    ],
)
def test_a_suite_with_a_mistake_is_refused_with_the_reason(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(MldynoError, match=said):
        expand([str(path)], {})


def test_a_suite_of_the_user_runs_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("# mine\ntarget = '5%'\n[[cases]]\nworkload = 'mlp'\nbatch = [1, 2]\ncompile = false\n")
    plan = expand([str(path)], {})
    assert plan.target == pytest.approx(0.05)
    assert len(plan.cases) == 4


def own(folder: Path, text: str, name: str = "own") -> str:
    """The path of a suite with that text."""
    path = folder / f"{name}.toml"
    path.write_text(text)
    return str(path)


def ids(plan: plans.Plan) -> list[str]:
    return [case.id for case in plan.cases]


def test_included_cases_come_first_each_once_and_their_settings_do_not_count(tmp_path: Path) -> None:
    own(tmp_path, "budget = '1s'\n[[cases]]\nworkload = 'mlp'\nmode = 'infer'\nbatch = [1, 2]\n", "inner")
    outer = "include = ['inner.toml']\ntarget = '5%'\n[[cases]]\nworkload = 'mlp'\nmode = 'infer'\nbatch = [2, 3]\n"
    plan = expand([own(tmp_path, outer)], {})
    assert [case.batch for case in plan.cases] == [1, 2, 3]
    assert (plan.suite, plan.target, plan.budget) == ("own", 0.05, 60.0)


def test_an_exclude_drops_the_cases_that_have_all_its_values(tmp_path: Path) -> None:
    own(tmp_path, "[[cases]]\nworkload = 'mlp'\nbatch = [1, 2, 4]\n", "inner")
    text = "include = ['inner.toml']\n[[exclude]]\nmode = 'train'\nbatch = [1, 4]\n[[exclude]]\nbatch = 2\n"
    plan = expand([own(tmp_path, text)], {})
    assert ids(plan) == ["mlp/infer/torch/cpu/fp32/b1/device", "mlp/infer/torch/cpu/fp32/b4/device"]


def test_an_exclude_of_an_included_suite_holds_for_its_own_cases_only(tmp_path: Path) -> None:
    inner = "[[cases]]\nworkload = 'mlp'\nbatch = [1, 2]\nmode = 'infer'\n[[exclude]]\nbatch = 2\n"
    own(tmp_path, inner, "inner")
    text = "include = ['inner.toml']\n[[cases]]\nworkload = 'mlp'\nmode = 'train'\nbatch = 2\n"
    assert ids(expand([own(tmp_path, text)], {})) == [
        "mlp/infer/torch/cpu/fp32/b1/device", "mlp/train/torch/cpu/fp32/b2/device",
    ]  # fmt: skip


MLP = "[[cases]]\nworkload = 'mlp'\nbatch = [1, 2]\n"


@pytest.mark.parametrize(
    ("exclude", "said"),
    [
        ("workload = 'mpl'", r"unknown workload in \[\[exclude\]\] of suite own.toml 'mpl'. Did you mean 'mlp'\?"),
        ("batch = [1, 3]", r"unknown batch in \[\[exclude\]\] of suite own.toml '3'. Possible: 1, 2."),
        ("device = 'mps'", r"unknown device in \[\[exclude\]\] of suite own.toml 'mps'. Possible: cpu."),
        ("batch = [1, 2]", r"suite own.toml: its \[\[exclude\]\] tables leave no case to run"),
    ],
)
def test_an_exclude_that_is_a_typo_or_leaves_nothing_is_refused(exclude: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        expand([own(tmp_path, f"{MLP}[[exclude]]\n{exclude}\n")], {})


def test_an_exclude_whose_values_never_are_paired_is_refused(tmp_path: Path) -> None:
    text = f"{MLP}mode = 'train'\n[[cases]]\nworkload = 'mlp'\nbatch = 3\nmode = 'infer'\n"
    with pytest.raises(UsageError, match="drops nothing: no case has mode infer, batch 1 or 2 at once"):
        expand([own(tmp_path, f"{text}[[exclude]]\nmode = 'infer'\nbatch = [1, 2]\n")], {})


def test_an_exclude_may_name_a_device_that_only_other_machines_have(tmp_path: Path) -> None:
    path = own(tmp_path, f"{MLP}mode = 'infer'\ndevice = 'all'\n[[exclude]]\ndevice = 'mps'\nbatch = 2\n")
    assert len(expand([path], {}).cases) == 2
    found = ids(expand([path], {}, here=lambda framework, python: ["cpu", "mps"]))
    assert [one.removeprefix("mlp/infer/torch/").removesuffix("/device") for one in found] == [
        "cpu/fp32/b1", "mps/fp32/b1", "cpu/fp32/b2",
    ]  # fmt: skip


def test_a_flag_may_leave_nothing_for_an_exclude_to_drop_but_must_leave_something_to_run(tmp_path: Path) -> None:
    path = own(tmp_path, f"{MLP}[[exclude]]\nbatch = 2\n")
    assert {case.batch for case in expand([path], {"batch": ["1"]}).cases} == {1}
    with pytest.raises(UsageError, match="and the axes on the command line leave no case"):
        expand([path], {"batch": ["2"]})


def test_devices_are_asked_for_only_where_a_word_stands_for_them(tmp_path: Path) -> None:
    asked = []

    def here(framework: str, python: str | None) -> list[str]:
        asked.append(framework)
        return ["cpu", "xpu:0", "xpu:1"]

    path = own(tmp_path, "[[cases]]\nworkload = 'mlp'\nmode = 'infer'\ndevice = ['all', 'gpu']\nframework = 'fake'\n")
    assert [case.device for case in expand([path], {}, here=here).cases] == ["cpu", "xpu:0", "xpu:1"]
    assert set(asked) == {"fake"}
    asked.clear()
    assert [case.device for case in expand([path], {"device": ["cpu"]}, here=here).cases] == ["cpu"]
    expand(["quick"], {}, here=here)
    assert asked == []


def test_gpu_is_the_first_accelerator_and_all_are_all() -> None:
    def devices(*words: str) -> list[str]:
        axes = {"device": list(words), "mode": ["infer"]}
        return [
            case.device
            for case in expand(["mlp"], axes, here=lambda framework, python: ["cpu", "cuda:0", "cuda:1"]).cases
        ]

    assert devices("gpu") == ["cuda:0"]
    assert devices("all") == ["cpu", "cuda:0", "cuda:1"]
    assert devices("cuda:1") == ["cuda:1"]
    assert devices("cuda", "gpu", "all") == ["cuda:0", "cpu", "cuda:1"]
    assert devices("cuda:9") == ["cuda:9"]  # not here: its record will say so


def test_an_accelerator_that_is_not_here_is_said(tmp_path: Path) -> None:
    with pytest.raises(MldynoError, match="no accelerator found, only the CPU; `mldyno doctor`"):
        expand([own(tmp_path, f"{MLP}device = 'gpu'\n")], {})


def test_each_framework_has_devices_of_its_own() -> None:
    seen = {"torch": ["cpu"], "fake": ["cpu", "gpu"]}
    axes = {"framework": ["torch", "fake"], "device": ["all"], "mode": ["infer"]}
    found = [
        (case.framework, case.device)
        for case in expand(["mlp"], axes, here=lambda framework, python: seen[framework]).cases
    ]
    assert found == [("torch", "cpu"), ("fake", "cpu"), ("fake", "gpu")]


def test_the_devices_of_a_suite_are_found_by_asking_the_framework(tmp_path: Path) -> None:
    path = own(tmp_path, "[[cases]]\nworkload = 'mlp'\nmode = 'infer'\nframework = 'fake'\ndevice = 'all'\n")
    assert [case.device for case in api.make_plan([path], {}).cases] == ["cpu", "gpu"]


def test_all_workloads_are_the_whole_catalogue_in_the_modes_that_they_have(tmp_path: Path) -> None:
    plan = expand([own(tmp_path, "[[cases]]\nworkload = 'all'\nmode = 'train'\n")], {})
    trained = [name for name in plugins.names("workloads") if "train" in plugins.workload(name).modes]
    assert [case.workload for case in plan.cases] == trained


def test_a_mode_on_the_command_line_leaves_away_what_a_suite_has_in_no_such_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = plugins.workload("bert-tiny")
    monkeypatch.setitem(bert.WORKLOADS, "bert-tiny", replace(tiny, modes=("train",)))
    path = own(tmp_path, "[[cases]]\nworkload = ['mlp', 'bert-tiny']\n")
    assert [case.workload for case in expand([path], {"mode": ["infer"]}).cases] == ["mlp"]
    for targets, axes in ((["bert-tiny"], {"mode": ["infer"]}), ([own(tmp_path, BERT_INFER)], {})):
        with pytest.raises(UsageError, match="bert-tiny can only be measured in mode train"):
            expand(targets, axes)


BERT_INFER = "[[cases]]\nworkload = 'bert-tiny'\nmode = 'infer'\n"


def test_a_framework_that_there_is_not_is_an_unknown_word(tmp_path: Path) -> None:
    path = own(tmp_path, "[[cases]]\nworkload = 'mlp'\nframework = 'caffe'\ndevice = 'all'\n")
    with pytest.raises(UsageError, match=r"unknown framework 'caffe'.* Possible: command, fake, jax, .*torch"):
        expand([path], {})


@pytest.mark.parametrize("name", suites.names())
def test_a_shipped_suite_can_be_faked_on_any_devices(name: str) -> None:
    plan = expand([name], {"framework": ["fake"], "device": ["all"]}, here=lambda framework, python: ["cpu", "gpu"])
    by_device = [{replace(case, device="") for case in plan.cases if case.device == kind} for kind in ("cpu", "gpu")]
    assert by_device[0] == by_device[1] != set()


def test_full_holds_every_case_of_the_other_suites_and_every_workload() -> None:
    full = set(expand(["full"], {}).cases)
    for name in suites.names():
        assert set(expand([name], {}).cases) <= full
    assert {case.workload for case in full} == set(plugins.names("workloads"))


def test_an_unknown_target_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="Did you mean 'resnet50'"):
        expand(["resnet5"], {})


def test_nothing_to_run_is_said() -> None:
    with pytest.raises(UsageError, match="name what to run"):
        expand([], {})


def test_members_of_a_kind_are_found_by_their_files_without_being_imported() -> None:
    assert {"mlp", "resnet50"} <= set(plugins.names("workloads"))
    assert not any(name.startswith(("-", "_")) for name in plugins.names("workloads"))
    assert plugins.about("frameworks", "torch")[1] == "torch"
    assert plugins.about("frameworks", "fake")[1] == ""


# -- sweeps over sizes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "per_doubling", "sizes"),
    [
        (1, 8, 1, [1, 2, 4, 8]),
        (8, 50, 1, [8, 16, 32, 50]),
        (1, 2, 1, [1, 2]),
        (1, 4, 4, [1, 2, 3, 4]),
        (16, 32, 2, [16, 23, 32]),
        (100, 101, 1, [100, 101]),
    ],
)
def test_sizes_are_evenly_spaced_by_their_ratio_and_end_where_asked(
    first: int, last: int, per_doubling: int, sizes: list[int]
) -> None:
    assert plans.geometric(first, last, per_doubling) == sizes


def test_a_sweep_goes_up_to_the_workloads_own_size_and_compares_along_the_axis_with_two_values() -> None:
    plan = plans.sweep("mlp", {"placement": ["device", "host"], "mode": ["infer"]}, "batch", settings={"repeats": 1})
    assert (plan.by, plan.repeats, len(plan.cases)) == ("placement", 1, 16)
    assert sorted({case.batch for case in plan.cases}) == [1, 2, 4, 8, 16, 32, 64, 128]  # type: ignore[type-var]
    lengths = plans.sweep("encoder", {"precision": ["fp32", "bf16"]}, "seq")
    assert sorted({case.seq for case in lengths.cases}) == [8, 16, 32, 50]  # type: ignore[type-var]
    assert {case.mode for case in lengths.cases} == {"train", "infer"}


def test_a_sweep_between_devices_is_refused_where_one_of_them_is_not_here() -> None:
    def sweep(device: str) -> plans.Plan:
        return plans.sweep("mlp", {"device": ["cpu", device]}, "batch", here=lambda framework, python: ("cpu", "mps"))

    assert (
        {case.device for case in sweep("mps").cases} == {case.device for case in sweep("gpu").cases} == {"cpu", "mps"}
    )
    with pytest.raises(MldynoError, match="no device 'cuda:0' here; torch sees cpu, mps"):
        sweep("cuda:0")


def test_smaller_sizes_come_first_so_that_larger_ones_need_not_run_out_of_memory() -> None:
    plan = plans.sweep("mlp", {"placement": ["device", "host"], "mode": ["infer"]}, "batch", ("2", "8"))
    assert [case.batch for case in plan.cases if case.placement == "host"] == [2, 4, 8]


@pytest.mark.parametrize(
    ("axis", "most"),
    [("ranks", 4096), ("nodes", 1024), ("threads", 4096), ("loader_workers", 1024), ("prefetch", 1024)],
)
def test_more_processes_and_threads_than_a_machine_can_have_are_refused(axis: str, most: int, tmp_path: Path) -> None:
    suite = tmp_path / "own.toml"
    suite.write_text(f"[[cases]]\nworkload = 'mnist-cnn'\n{axis} = [1, {most + 1}]\n")
    words = rf"{most + 1:,} {axis.replace('_', ' ')} are over {most:,}; ask for fewer\."
    for targets, axes in (([str(suite)], {}), (["mnist-cnn"], {axis: [str(most + 1)]})):
        with pytest.raises(UsageError, match=words):
            expand(targets, axes)
    assert AXIS[axis].parse(str(10**6)) == 10**6, "a record may have more, and is found by it"
