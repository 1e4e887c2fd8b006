"""ONNX files as workloads: what they say of themselves, what they are fed with, and that they are run as they are."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mldyno import api, cli, plugins, sources
from mldyno.errors import MldynoError, UsageError
from mldyno.frameworks import Program, runtimes
from mldyno.plugins import start_framework
from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads.user_models import code, describe
from mldyno.workloads.user_models import onnx as onnx_files
from mldyno.workloads.user_models.recipes import NotUnderstood

FLOAT, WHOLE = TensorProto.FLOAT, TensorProto.INT64
MEASURED = {"ok", "unsteady"}  # what step times do on a busy machine is not asked here
Save = Callable[..., Path]


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """No source of another test is known."""
    monkeypatch.setattr(sources, "_KNOWN", {})
    monkeypatch.setattr(code, "_LOADED", {})


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Saves a graph as a file; inputs are names with a type and a shape."""

    def save(nodes: Sequence[Any], inputs: dict[str, Any], outputs: Sequence[str], name: str = "model.onnx",
             weights: dict[str, Any] | None = None) -> Path:  # fmt: skip
        graph = helper.make_graph(
            nodes, "graph",
            [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
            [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        path = tmp_path / name
        onnx.save(model, path)
        return path

    return save


def normal(*shape: int) -> Any:
    """Some weights."""
    return numpy.random.default_rng(1).standard_normal(shape).astype("float32")


@pytest.fixture
def linear(save: Save) -> Path:
    """One product, for any batch."""
    return save([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, ["batch", 16])}, ["y"],
                weights={"w": normal(16, 4)})  # fmt: skip


@pytest.fixture
def text(save: Save) -> Path:
    """Rows of a table with 37 of them, masked, by ids that are cast first; and their sum as a second output."""
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["ids"], to=TensorProto.INT32),
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Unsqueeze", ["attention_mask", "last"], ["mask"]),
        helper.make_node("Cast", ["mask"], ["weights"], to=FLOAT),
        helper.make_node("Mul", ["rows", "weights"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "last"], ["sums"]),
    ]
    texts = (WHOLE, ["batch", "sequence"])
    return save(nodes, {"input_ids": texts, "attention_mask": texts}, ["masked", "sums"],
                name="text.onnx", weights={"table": normal(37, 8), "last": numpy.array([2])})  # fmt: skip


def described(path: Path) -> Source:
    """What is known of a file."""
    return describe(sources.read(str(path)), start_framework)


def program_of(path: Path, framework: str = "onnxruntime", **axes: Any) -> Program:
    """Its program, on the CPU, with one thread."""
    source = described(path)
    sources.register(source)
    own = plugins.framework(framework)
    own.start()
    sizes = {"batch": source.batch, "seq": source.seq}
    axes = {"placement": "device", "precision": "fp32", "mode": "infer", "threads": 1, **sizes, **axes}
    case = Case(source.name, framework=framework, device="cpu", **axes)
    return own.open(case, own.version_of(plugins.workload(source.name)))


# -- what a file says ------------------------------------------------------------------------------


def test_a_file_is_read_as_onnx_reads_it(text: Path) -> None:
    graph, model = onnx_files.read_graph(str(text)), onnx.load(text).graph
    assert [each.name for each in graph.inputs] == [each.name for each in model.input]
    assert [each.shape for each in graph.inputs] == [("batch", "sequence")] * 2
    assert [operator for operator, _, _ in graph.nodes] == [node.op_type for node in model.node]
    assert graph.weights["table"] == ("fp32", (37, 8))
    assert (graph.params, graph.weights_in) == (37 * 8, ("fp32",))


def test_its_sizes_are_the_dimensions_that_it_leaves_open(linear: Path, text: Path) -> None:
    source = described(linear)
    assert (source.batch, source.seq, source.item, source.items) == (8, None, "sample", 8)
    assert (source.framework, source.modes, source.title) == ("onnxruntime", ("infer",), "model.onnx")
    source = described(text)
    assert (source.batch, source.seq, source.item, source.items) == (8, 128, "token", 8 * 128)


def test_a_fixed_batch_can_not_be_chosen(save: Save) -> None:
    path = save([helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, [2, 3, 8, 8])}, ["y"])
    source = described(path)
    assert (source.batch, source.item, source.items) == (None, "image", 2)
    with pytest.raises(UsageError, match=r"no batch to choose in .*: its first dimension is fixed in the file"):
        api.make_plan([str(path)], {"batch": [4]})


def test_a_file_with_its_weights_beside_it_is_known_by_both(linear: Path, tmp_path: Path) -> None:
    model = onnx.load(linear)
    path = tmp_path / "large.onnx"
    onnx.save(model, path, save_as_external_data=True, location="large.data", size_threshold=0)
    before = described(path)
    program_of(path).run(1)
    data = tmp_path / "large.data"
    content = bytearray(data.read_bytes())
    content[3] ^= 1
    data.write_bytes(content)
    assert described(path).name != before.name
    data.unlink()
    with pytest.raises(NotUnderstood, match=r"large\.onnx has weights in large\.data, which is not next to it"):
        described(path)


def test_a_file_that_was_changed_since_the_run_began_is_not_measured(linear: Path) -> None:
    source = described(linear)
    linear.write_bytes(linear.read_bytes() + helper.make_opsetid("", 20).SerializeToString())
    with pytest.raises(NotUnderstood, match=r"model\.onnx was changed since the run began; run it again"):
        onnx_files.build(source, None, Case(source.name, mode="infer", batch=8))


# -- what it is fed with ---------------------------------------------------------------------------


def fed(path: Path, batch: int | None = None, seq: int | None = None) -> dict[str, Any]:
    """The arrays of a batch."""
    source = sources.read(str(path))
    return runtimes.arrays(onnx_files.feeds(onnx_files.read_graph(str(path)), source, batch, seq), seed=1)


def test_ids_lie_below_the_rows_of_their_table_and_masks_are_ones(text: Path) -> None:
    batch = fed(text, 64, 32)
    assert batch["input_ids"].shape == (64, 32)
    assert {*batch["input_ids"].flat} == {*range(37)}
    assert {*batch["attention_mask"].flat} == {1}


def test_whole_numbers_of_unknown_use_are_0_or_1(save: Save) -> None:
    path = save([helper.make_node("Cast", ["n"], ["y"], to=FLOAT)], {"n": (WHOLE, ["batch", 9])}, ["y"])
    assert {*fed(path)["n"].flat} == {0, 1}


def test_images_and_past_keys_have_sizes_of_their_own(save: Save) -> None:
    inputs = {
        "image": (FLOAT, ["n", "c", "h", "w"]), "bytes": (TensorProto.UINT8, ["n", 3, "h", "w"]),
        "past_key": (FLOAT, ["n", 2, "past_sequence_length", 4]), "sound": (FLOAT, ["n", "past_length + length"]),
        "flag": (TensorProto.BOOL, ["n"]), "half": (TensorProto.FLOAT16, [1]),
    }  # fmt: skip
    path = save([helper.make_node("Identity", ["image"], ["y"])], inputs, ["y"])
    shapes = {name: array.shape for name, array in fed(path, 2, 5).items()}
    assert shapes == {"image": (2, 3, 224, 224), "bytes": (2, 3, 224, 224), "past_key": (2, 2, 0, 4), "sound": (2, 5),
                      "flag": (2,), "half": (1,)}  # fmt: skip
    assert fed(path, 2)["bytes"].max() > 200
    assert fed(path)["half"].dtype == numpy.float16
    assert fed(path)["flag"].all()


# -- it is run as it is ----------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["device", "host", "roundtrip"])
@pytest.mark.parametrize("framework", ["onnxruntime", "openvino"])
def test_both_runtimes_run_a_file_and_agree_with_it_unoptimised(framework: str, placement: str, text: Path) -> None:
    program = program_of(text, framework, placement=placement, batch=2, seq=6)
    program.run(3)
    program.synchronize()
    error, tolerance = program.error_vs_reference() or (1.0, 0.0)
    assert error <= tolerance == 1e-3
    assert (program.params, program.losses(), program.actual_device()) == (37 * 8, None, "cpu")
    assert program.facts["weights_in"] == "fp32"


def test_both_runtimes_prove_that_they_compute_the_same(text: Path) -> None:
    proofs = []
    for framework in ("onnxruntime", "openvino"):
        program = program_of(text, framework)
        program.error_vs_reference()
        proofs.append([float(number) for number in program.facts["proof"].split()])
    assert len(proofs[0]) == 16
    assert proofs[0] == pytest.approx(proofs[1], rel=1e-4, abs=1e-6)


def test_an_engine_that_computes_something_else_is_noticed(linear: Path) -> None:
    program: Any = program_of(linear)
    right = program.engine.fetch
    program.engine.fetch = lambda output: [1.1 * array for array in right(output)]
    error, tolerance = program.error_vs_reference()
    assert error == pytest.approx(0.1, rel=1e-3)
    assert error > tolerance


def test_numbers_that_are_not_finite_in_the_file_itself_prove_nothing(save: Save) -> None:
    path = save([helper.make_node("Log", ["z"], ["y"])], {"x": (FLOAT, ["batch", 4])}, ["y"],
                weights={"z": numpy.full((2, 2), -1.0, "float32")})  # fmt: skip
    with pytest.raises(Exception, match="its outputs for random inputs are not finite"):
        program_of(path).error_vs_reference()


def test_without_onnxruntime_openvino_says_that_it_was_not_checked(
    linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime")

    program = program_of(linear, "openvino")
    monkeypatch.setattr(plugins.framework("onnxruntime"), "start", absent)
    assert program.error_vs_reference() is None
    assert program.facts["not_checked"] == "agreement with the CPU"


def test_weights_of_few_digits_may_differ_more(linear: Path) -> None:
    program: Any = program_of(linear)
    for weights_in, tolerance in ((("fp16",), 2e-2), (("fp32", "int8"), 1e-1), ((), 1e-3)):
        program.file = onnx_files.OnnxFile("", 1, weights_in)
        assert program._tolerance() == tolerance


def test_a_run_of_a_file_is_a_record_without_its_path(linear: Path, store: Any) -> None:
    results = api.run(str(linear), batch=[2, 4], threads=1, steps=2, repeats=1, store=store)
    records = results.records
    assert {record.status for record in records} <= MEASURED, [record.reason for record in records]
    assert {record.case.batch for record in records} == {2, 4}
    assert all(record.checks.agrees for record in records if record.checks.agrees is not None)
    assert {record.fact("params") for record in records} == {64}
    assert all(str(linear.parent) not in record.text for record in records)
    assert all("torch" not in record.software.versions for record in records)


# -- what can't be run -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "it is empty"), (b"hello world, this is no graph", "it is no ONNX file"), (b"\x08\x0a", "it has no graph"),
     (b"\x38\x05", "it is no ONNX file")],
)  # fmt: skip
def test_what_is_no_onnx_file_is_a_line(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(MldynoError) as error:
        api.make_plan([str(path)], {})
    assert str(error.value) == f"model.onnx can't be read: {why}; export it again, or copy it whole."


def test_a_file_that_was_cut_anywhere_is_a_line(text: Path) -> None:
    content = text.read_bytes()
    for end in range(0, len(content) - 20, 7):
        text.write_bytes(content[:end])
        with pytest.raises(NotUnderstood, match="can't be read"):
            described(text)


@pytest.mark.parametrize("pattern", [b"\0", b"\x08\x08", b"\x0a\x00", b"\xff", b"\x3a\x02\x0a\x00"])
def test_a_large_file_of_nothing_is_given_up_early(
    pattern: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_files, "MOST_FIELDS", 1000)
    (tmp_path / "model.onnx").write_bytes(pattern * (5_000_000 // len(pattern)))
    looks = Counter[str]()
    read_number = onnx_files._varint

    def counted(content: object, start: int, end: int) -> tuple[int, int]:
        looks["numbers"] += 1
        return read_number(content, start, end)

    monkeypatch.setattr(onnx_files, "_varint", counted)
    with pytest.raises(onnx_files.Damaged, match=r"it is no ONNX file|over 1,000 fields"):
        onnx_files.read_graph(str(tmp_path / "model.onnx"))
    assert looks["numbers"] <= 2001


@pytest.mark.parametrize("tags", [(0x3A, 0x2A, 0x0A), (0x3A, 0x0A)], ids=["sizes of a weight", "inputs of nodes"])
def test_fields_are_counted_over_all_parts_of_a_file(
    tags: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_files, "MOST_FIELDS", 1000)
    content = b"\x0a\x00" * 400
    for tag in reversed(tags):
        content = 3 * (bytes([tag, len(content) & 127 | 128, len(content) >> 7]) + content)
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(onnx_files.Damaged, match=r"over 1,000 fields"):
        onnx_files.read_graph(str(tmp_path / "model.onnx"))


def test_bytes_that_were_changed_never_end_in_another_error(text: Path) -> None:
    content, chance = text.read_bytes(), numpy.random.default_rng(3)
    for _ in range(300):
        changed = bytearray(content)
        for place in chance.integers(0, len(content), 4):
            changed[place] = int(chance.integers(256))
        text.write_bytes(changed)
        try:
            described(text)
        except NotUnderstood:
            continue


@pytest.mark.parametrize("place", ["../secret", "/etc/hostname"])
def test_weights_outside_its_folder_are_refused(place: str, linear: Path) -> None:
    model = onnx.load(linear)
    (weight,) = model.graph.initializer
    onnx.external_data_helper.set_external_data(weight, place)
    weight.ClearField("raw_data")
    linear.write_bytes(model.SerializeToString())
    with pytest.raises(NotUnderstood, match=f"has weights in {place}, outside its folder; save it with all of them"):
        described(linear)


def test_inputs_that_can_not_be_made_are_a_line(save: Save) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    with pytest.raises(NotUnderstood, match="its input x is text, of which mldyno makes no random ones"):
        described(save(nodes, {"x": (TensorProto.STRING, ["n"])}, ["y"]))
    with pytest.raises(NotUnderstood, match="its input x has no shape; export it with one"):
        described(save(nodes, {"x": (FLOAT, None)}, ["y"]))
    with pytest.raises(NotUnderstood, match="takes no inputs: there is nothing to measure"):
        described(save([helper.make_node("Identity", ["w"], ["y"])], {}, ["y"], weights={"w": normal(2)}))


def test_a_model_with_several_inputs_can_not_be_exported_here() -> None:
    import torch

    from mldyno.frameworks.runtimes import ExportedProgram
    from mldyno.workloads import Recipe

    def build(framework: Any, case: Case) -> Recipe:
        batch = {"a": torch.ones(2), "b": torch.ones(2)}
        return Recipe(torch.nn.Linear(1, 1), lambda: (batch, None), lambda *_: None, lambda _: None)

    with pytest.raises(Exception, match="it has several inputs"):
        ExportedProgram(torch, Case("x", mode="infer"), build, lambda network, case: None)  # type: ignore[arg-type,return-value]


# -- the page --------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs/how-to/measure-a-hugging-face-model.md").read_text()
COMMANDS = re.findall(r"^\$ mldyno (run model\.onnx.*)$", PAGE, re.MULTILINE)
FEW = ["--steps", "2", "--repeats", "1", "--budget", "1s", "--threads", "1", "-q"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_how_to_does_what_it_says(
    command: str, linear: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(linear.parent)
    with pytest.raises(SystemExit) as end:
        cli.main([*shlex.split(command), *FEW])
    out, err = capsys.readouterr()
    assert end.value.code == 0 or "unsteady" in out, err
    assert "model.onnx@" in out
    assert "not proven" not in out


def test_the_page_has_commands_for_files() -> None:
    assert len(COMMANDS) == 2
    assert "no batch to choose in model.onnx: its first dimension is fixed in the file." in PAGE
