"""What a user mistypes is told in one line: what was wrong, what is possible, and what was probably meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Dyno

USER_ERROR, USAGE = 1, 2
FAKE = ("run", "mlp", "--framework", "fake")


def check(dyno: Dyno, arguments: tuple[str, ...], code: int, words: tuple[str, ...]) -> None:
    """The command is refused with that code and those words, and leaves no store behind."""
    line = dyno.refusal(*arguments, code=code)
    for one in words:
        assert one in line
    assert not dyno.store.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "mpl"), ("unknown workload or suite 'mpl'.", "Did you mean 'mlp'?")),
        (("run", "resnet"), ("Did you mean 'resnet18', 'resnet18-cifar' or 'resnet50'?",)),
        (("run", "zzz"), ("unknown workload or suite 'zzz'.", "m1-chips, ", "quick, roofline, scaling, attention")),
        (("run", "nope"), ("unknown workload or suite 'nope'. Possible: apple-silicon-bert",)),
        (("export", "x.jsonl", "mlp"), ("unexpected extra argument (mlp). See: mldyno export --help",)),
        (("bench",), ("unknown command 'bench'.", "Did you mean 'quick' or 'run'?")),
        (("list", "things"), ("unknown kind 'things'.", "workloads, suites")),
        (("run", "quik"), ("unknown workload or suite 'quik'.", "Did you mean 'quick'?")),
        (("rnu", "mlp"), ("unknown command 'rnu'.", "Did you mean 'run'?")),
        (("run", "mlp", "--framework", "troch"), ("unknown framework 'troch'.", "Did you mean 'torch'?", "fake")),
        ((*FAKE, "--device", "cpx"), ("unknown device 'cpx'.", "Did you mean 'cpu'?", "cuda:0", "all")),
        ((*FAKE, "--device", "cuda:x"), ("unknown device 'cuda:x'.", "Possible: cpu")),
        ((*FAKE, "--mode", "trian"), ("unknown mode 'trian'.", "Did you mean 'train'?", "infer")),
        ((*FAKE, "--precision", "fp23"), ("unknown precision 'fp23'.", "Did you mean 'fp32'?", "bf16")),
        ((*FAKE, "--placement", "hots"), ("unknown placement 'hots'.", "Did you mean 'host'?", "roundtrip")),
        ((*FAKE, "--compile", "maybe"), ("unknown compile 'maybe'.", "yes", "no")),
        ((*FAKE, "--by", "devise"), ("unknown axis 'devise'.", "Did you mean 'device'?", "placement")),
        (("table", "mlp", "--rows", "bach"), ("unknown axis 'bach'.", "Did you mean 'batch'?", "machine")),
        (("table", "mlp", "--cols", "machin"), ("unknown axis 'machin'.", "Did you mean 'machine'?")),
        (("table", "mlp", "--rows", "batch", "--cols", "batch"), ("both a row and a column: batch",)),
        (("table", "mlp", "--value", "thruput"), ("unknown value 'thruput'.", "Did you mean 'throughput'?", "speedup")),
        (("table", "mlp", "--value", "time:0steps"), ("'time:0steps' is not a time of steps", "time:100steps")),
        (("table", "mlp/traim"), ("'traim'.", "Did you mean 'train'?")),
        (("table", "devise=cpu"), ("unknown axis 'devise'.", "Did you mean 'device'?")),
        (("table", "batch=many"), ("invalid batch 'many'", "a whole number such as 16")),
        (("history", "nosuchthing"), ("unknown workload, machine, case or file 'nosuchthing'.", "mlp")),
        (("compare", "mlp/trian", "mlp/infer"), ("'trian'.", "Did you mean 'train'?")),
        (("compare", "mlp", "--by", "devise"), ("unknown axis 'devise'.", "Did you mean 'device'?")),
        (("export", "--only", "mlp/trian"), ("'trian'.", "Did you mean 'train'?")),
        (("show", "mlp/trian"), ("'trian'.", "Did you mean 'train'?")),
        (("table", "/"), ("'/' names nothing", "mlp/train")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value[0], str) and "'" not in value[0] else "",
)
def test_an_unknown_word_is_answered_with_what_is_possible(
    dyno: Dyno, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    check(dyno, arguments, USAGE, words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*FAKE, "--batch", "0"), ("invalid batch '0'", "16")),
        ((*FAKE, "--batch", "-8"), ("invalid batch '-8'",)),
        ((*FAKE, "--batch", "8.5"), ("invalid batch '8.5'",)),
        ((*FAKE, "--batch", "1e3"), ("invalid batch '1e3'",)),
        ((*FAKE, "--batch", str(2**53)), ("invalid batch",)),
        ((*FAKE, "--batch", "9" * 5000), ("invalid batch",)),
        (("table", f"mlp/b{'9' * 5000}"), ("invalid batch",)),
        (("table", "mlp", "--value", f"time:{'9' * 5000}steps"), ("is not a time of steps",)),
        ((*FAKE, "--seq-len", "long"), ("invalid seq 'long'",)),
        ((*FAKE, "--threads", "0"), ("invalid threads '0'",)),
        ((*FAKE, "--batch", "8,,16"), ("'8,,16' has an empty entry", "one,two", "--help")),
        ((*FAKE, "--device", ""), ("has an empty entry",)),
        ((*FAKE, "--mode", "train,"), ("'train,' has an empty entry",)),
        (("table", "mlp", "--rows", "batch,"), ("'batch,' has an empty entry",)),
        ((*FAKE, "--steps", "0"), ("--steps", "0 is not in the range x>=1")),
        ((*FAKE, "--steps", "-3"), ("--steps",)),
        ((*FAKE, "--steps", "many"), ("--steps", "'many' is not a valid integer")),
        ((*FAKE, "--steps", str(2**53)), ("--steps",)),
        ((*FAKE, "--repeats", "0"), ("--repeats", "range")),
        ((*FAKE, "--repeats", "1001"), ("--repeats", "range")),
        ((*FAKE, "--budget", "5parsecs"), ("'5parsecs' is not a duration", "60s, 2m or 500ms", "ns, us")),
        ((*FAKE, "--budget", "0s"), ("it must be more than 0",)),
        ((*FAKE, "--budget", "-5s"), ("'-5s' is not a duration",)),
        ((*FAKE, "--budget", "nan"), ("'nan' is not a duration",)),
        ((*FAKE, "--budget", "1e999s"), ("finite",)),
        ((*FAKE, "--timeout", "soon"), ("'soon' is not a duration",)),
        ((*FAKE, "--target", "200%"), ("'200%' is 100 % or more", "2% or 0.02")),
        ((*FAKE, "--target", "2"), ("100 % or more",)),
        ((*FAKE, "--target", "0"), ("more than 0",)),
        ((*FAKE, "--target", "2‰"), ("is not a fraction",)),
        ((*FAKE, "--batchsize", "8"), ("No such option '--batchsize'", "--batch-size", "mldyno run --help")),
        (("run",), ("name what to run", "mldyno run mlp")),
        (("import",), ("Missing argument", "mldyno import --help")),
        (("table", "mlp", "--format", "yaml"), ("'yaml' is not one of", "markdown")),
        (("history", "--most", "none"), ("--most", "mldyno history --help")),
        (("table", f"mlp/b{10**20}"), ("invalid batch",)),
        (("list", "everything"), ("everything", "workloads")),
    ],
    ids=lambda value: " ".join(value)[:60] if "run" in value or "table" in value else "",
)
def test_a_value_that_makes_no_sense_is_answered_with_one_that_does(
    dyno: Dyno, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    check(dyno, arguments, USAGE, words)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("bugdet = '3s'\n[[cases]]\nworkload = 'mlp'\n", USAGE, ("'bugdet'.", "Did you mean 'budget'?", "repeats")),
        ("[[cases]]\nworkload = 'mlp'\nbacth = 8\n", USAGE, ("'bacth'.", "Did you mean 'batch'?", "placement")),
        ("[[cases]]\nworkload = 'mpl'\n", USAGE, ("'mpl'.", "Did you mean 'mlp'?")),
        ("[[cases]]\nworkload = 'mlp'\nbatch = 0\n", USAGE, ("invalid batch '0'",)),
        ("[[cases]]\nworkload = 'mlp'\nbatch = 8.5\n", USAGE, ("batch must be a value or a list of values",)),
        ("[[cases]]\nworkload = 'mlp'\nbatch = []\n", USAGE, ("batch must be a value or a list of values",)),
        ("[[cases]]\nworkload = 'mlp'\nmode = [['train']]\n", USAGE, ("mode must be a value or a list of values",)),
        ("[[cases]]\nmode = 'train'\n", USAGE, ("needs a workload",)),
        ("budget = '3s'\n", USAGE, ("needs at least one [[cases]] table",)),
        ("cases = 3\n", USAGE, ("cases must be tables", "[[cases]]")),
        ("include = ['own.toml']\n", USAGE, ("suite own.toml includes itself: own.toml -> own.toml.",)),
        ("[[cases]]\nworkload = 'mlp'\n[[exclude]]\nbatch = 3\n", USAGE, ("batch in [[exclude]]", "Possible: 128.")),
        ("budget = '3 weeks'\n[[cases]]\nworkload = 'mlp'\n", USAGE, ("'3 weeks' is not a duration",)),
        ("target = 2\n[[cases]]\nworkload = 'mlp'\n", USAGE, ("'2' is 100 % or more",)),
        ("repeats = 0\n[[cases]]\nworkload = 'mlp'\n", USAGE, ("repeats must be between 1 and 1,000",)),
        ("repeats = 'two'\n[[cases]]\nworkload = 'mlp'\n", USAGE, ("repeats must be a whole number",)),
        ("repeats = true\n[[cases]]\nworkload = 'mlp'\n", USAGE, ("repeats must be a whole number",)),
        ("[[cases]\nworkload = mlp", USER_ERROR, ("own.toml: not TOML:",)),
        ("", USAGE, ("needs at least one [[cases]] table",)),
    ],
    ids=lambda value: value.replace("\n", " ") if isinstance(value, str) else "",
)
def test_a_mistake_in_a_suite_is_told_with_what_is_possible(
    dyno: Dyno, text: str, code: int, words: tuple[str, ...]
) -> None:
    (dyno.folder / "own.toml").write_text(text)
    check(dyno, ("run", "own.toml", "--framework", "fake"), code, words)


def test_a_suite_that_is_not_there_is_named(dyno: Dyno) -> None:
    check(dyno, ("run", "none.toml"), USER_ERROR, ("none.toml: No such file or directory",))


def test_a_binary_suite_is_no_suite(dyno: Dyno) -> None:
    (dyno.folder / "own.toml").write_bytes(b"\xff\xfe\x00\x01")
    check(dyno, ("run", "own.toml"), USER_ERROR, ("own.toml: not TOML:",))


def test_a_device_that_is_not_here_becomes_a_record_not_an_error(dyno: Dyno) -> None:
    code, records = dyno.measure("mlp", "--mode", "infer", "--device", "mps,cpu", "--steps", "10")
    assert code == 3
    assert {record.case.device: record.status for record in records.values()} == {"mps": "unsupported", "cpu": "ok"}


@pytest.mark.parametrize("limit", ["lots", "-1", "0"])
def test_a_memory_limit_that_makes_no_sense_is_told(dyno: Dyno, limit: str) -> None:
    line = dyno.refusal(*FAKE, code=USAGE, MLDYNO_MEMORY_LIMIT=limit)
    assert f"'{limit}' is not a size" in line
    assert not dyno.store.exists(), "it is told before a run has begun"


def test_nothing_recorded_yet_is_told_with_the_next_step(dyno: Dyno) -> None:
    check(dyno, ("table", "framework=fake"), USER_ERROR, ("nothing recorded for 'framework=fake' yet", "mldyno run"))
    check(dyno, ("show", "mlp/train/fake"), USER_ERROR, ("nothing recorded", "mldyno history"))
