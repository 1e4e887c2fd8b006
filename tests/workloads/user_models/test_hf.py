"""Models of Hugging Face: tiny ones in folders and in a cache, all made here; nothing is fetched."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mldyno import api, cli, plugins, sources
from mldyno.errors import UsageError
from mldyno.frameworks import Program
from mldyno.plugins import start_framework
from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads.user_models import code, describe, hf
from mldyno.workloads.user_models.recipes import NotUnderstood

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TEXTS = {**SIZES, "vocab_size": 100, "max_position_embeddings": 64}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 100, "n_positions": 64, "bos_token_id": 0,
        "eos_token_id": 0}  # fmt: skip
VIT = {**SIZES, "image_size": 32, "patch_size": 8, "num_labels": 5}
MEASURED = ("ok", "unsteady")  # what step times do on a busy machine is not asked here
Saved = Callable[..., str]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test fetches anything, or sees the user's cache."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "_KNOWN", {})
    monkeypatch.setattr(code, "_LOADED", {})
    hf._tokenizer.cache_clear()


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Saves a fresh model with its configuration, and gives the word for it."""

    def save(architecture: str, configuration: str, name: str = "tiny", **sizes: Any) -> str:
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        torch.manual_seed(1)
        model = getattr(transformers, architecture)(getattr(transformers, configuration)(**sizes))
        model.save_pretrained(tmp_path / name)
        return f"hf:{tmp_path / name}"

    return save


def add_tokenizer(folder: Path) -> None:
    """A tokenizer as BERT's: [CLS] before a text, [SEP] after it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = {word: place for place, word in enumerate([*special, *"abcdefghijklmnop"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)  # fmt: skip


def described(word: str, weights: bool = False) -> Source:
    """What is known of a model, in this process."""
    return describe(sources.read(word, weights), start_framework)


def recipe_of(source: Source, mode: str = "infer", batch: int = 4, seq: int | None = None) -> Any:
    """Its recipe."""
    case = Case(source.name, mode=mode, framework="torch", batch=batch, seq=seq or source.seq)  # type: ignore[arg-type]
    return hf.build(source, torch, case)


def program_of(source: Source, **axes: Any) -> Program:
    """Its program, on the CPU."""
    sources.register(source)
    axes = {"mode": "infer", "precision": "fp32", "placement": "device", "batch": 4, "seq": source.seq, **axes}
    framework = plugins.framework("torch")
    framework.start()
    case = Case(source.name, framework="torch", device="cpu", **axes)
    return framework.open(case, framework.version_of(plugins.workload(source.name)))


# -- what it is ------------------------------------------------------------------------------------

ARCHITECTURES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "BertForMaskedLM": ("BertConfig", TEXTS, {"seq": 64, "item": "token", "items": 512}),
    "BertForSequenceClassification": ("BertConfig", {**TEXTS, "num_labels": 3}, {"seq": 64, "item": "token"}),
    "BertForQuestionAnswering": ("BertConfig", TEXTS, {"seq": 64, "item": "token"}),
    "GPT2LMHeadModel": ("GPT2Config", GPT2, {"seq": 32, "item": "token", "decoded": 32}),
    "GPT2ForSequenceClassification": ("GPT2Config", GPT2, {"seq": 64, "decoded": 0}),
    "LlamaForCausalLM": ("LlamaConfig", {**TEXTS, "max_position_embeddings": 256}, {"seq": 128, "decoded": 32}),
    "MambaForCausalLM": ("MambaConfig", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 100},
                         {"seq": 128, "decoded": 0}),
    "ViTForImageClassification": ("ViTConfig", VIT, {"seq": None, "item": "image", "items": 8}),
    "T5ForConditionalGeneration": (
        "T5Config", {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 100},
        {"seq": 128, "item": "token", "decoded": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kind_of_model_trains_and_infers(architecture: str, saved: Saved) -> None:
    configuration, sizes, known = ARCHITECTURES[architecture]
    source = described(saved(architecture, configuration, **sizes))
    assert {name: getattr(source, name) for name in known} == known
    assert (source.framework, source.batch, source.modes) == ("torch", 8, ("train", "infer"))
    training = program_of(source, mode="train", seq=source.seq and 16)
    training.run(1)
    first = training.first_losses()
    training.run(6)
    last = training.losses()
    assert first is not None
    assert last is not None
    assert last["loss"] < first["loss"]
    program = program_of(source, precision="bf16", placement="roundtrip", seq=source.seq and 16)
    program.run(1)
    error, tolerance = program.error_vs_reference() or (1.0, 0.0)
    assert error <= tolerance
    assert program.facts["architecture"] == architecture
    assert program.facts["weights"] == "random"


def test_a_model_of_texts_and_images_gets_both(saved: Saved) -> None:
    words = {**TEXTS, "max_position_embeddings": 32, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    source = described(saved("CLIPModel", "CLIPConfig", text_config=words, vision_config=VIT, projection_dim=16))
    assert (source.item, source.modes, source.seq) == ("image", ("infer",), 32)
    inputs, _ = recipe_of(source).draw()
    assert inputs["pixel_values"].shape == (4, 3, 32, 32)
    assert inputs["input_ids"].shape == (4, 32)


def test_a_configuration_without_an_architecture_gets_the_usual_one(saved: Saved, tmp_path: Path) -> None:
    word = saved("BertModel", "BertConfig", **TEXTS)
    change(tmp_path / "tiny", architectures=None)
    assert recipe_of(described(word)).notes["architecture"] == "BertForMaskedLM"


def test_a_model_without_a_head_only_infers(saved: Saved) -> None:
    source = described(saved("BertModel", "BertConfig", **TEXTS))
    assert source.modes == ("infer",)
    assert source.output == "tree"


# -- its batches -----------------------------------------------------------------------------------


def test_texts_are_as_the_tokenizer_makes_them(saved: Saved, tmp_path: Path) -> None:
    word = saved("BertForMaskedLM", "BertConfig", **TEXTS)
    plain, _ = recipe_of(described(word)).draw()
    assert list(plain) == ["input_ids", "attention_mask", "token_type_ids"]
    add_tokenizer(tmp_path / "tiny")
    hf._tokenizer.cache_clear()
    inputs, targets = recipe_of(described(word), batch=3, seq=12).draw()
    ids = inputs["input_ids"]
    assert list(inputs) == ["input_ids", "attention_mask"]  # what this tokenizer gives
    assert targets is None
    assert ids.shape == (3, 12)
    assert ids[:, 0].tolist() == [2, 2, 2]
    assert ids[:, -1].tolist() == [3, 3, 3]
    assert bool((ids[:, 1:-1] >= 5).all()), "special tokens within a text"
    assert int(ids.max()) < 21, "beyond the tokenizer's vocabulary"
    assert bool(inputs["attention_mask"].all())


def test_labels_are_there_in_training_only(saved: Saved) -> None:
    source = described(saved("BertForSequenceClassification", "BertConfig", **TEXTS, num_labels=3))
    assert recipe_of(source, "train").draw()[0]["labels"].shape == (4,)
    assert "labels" not in recipe_of(source, "infer").draw()[0]


def test_a_model_that_gives_a_number_has_numbers_as_labels(saved: Saved) -> None:
    source = described(saved("BertForSequenceClassification", "BertConfig", **TEXTS, num_labels=1))
    assert recipe_of(source, "train").draw()[0]["labels"].is_floating_point()


def test_images_have_the_size_that_the_processor_gives_them(saved: Saved, tmp_path: Path) -> None:
    word = saved("ResNetForImageClassification", "ResNetConfig", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    assert recipe_of(described(word)).draw()[0]["pixel_values"].shape == (4, 3, 224, 224)
    processor = {"size": {"shortest_edge": 48}, "crop_size": {"height": 32, "width": 40}}
    (tmp_path / "tiny" / "preprocessor_config.json").write_text(json.dumps(processor))
    assert recipe_of(described(word)).draw()[0]["pixel_values"].shape == (4, 3, 32, 40)


def test_a_sequence_that_is_too_long_is_unsupported(saved: Saved) -> None:
    source = described(saved("GPT2LMHeadModel", "GPT2Config", **GPT2))
    with pytest.raises(NotUnderstood, match="hf:tiny knows 64 positions; a sequence needs 72"):
        recipe_of(source, seq=40)
    recipe_of(source, "train", seq=64)


# -- generation ------------------------------------------------------------------------------------


def test_its_phases_generate_what_the_model_itself_generates(saved: Saved) -> None:
    source = described(saved("GPT2LMHeadModel", "GPT2Config", **GPT2, initializer_range=0.5), weights=True)
    recipe = recipe_of(source, batch=3, seq=7)
    network, (inputs, _) = recipe.network.eval(), recipe.draw()
    assert {name: phase.items for name, phase in recipe.phases.items()} == {"prefill": 21, "decode": 96}
    with torch.inference_mode():
        given: Any = None
        for phase in recipe.phases.values():
            given = phase.run(network, inputs, given)
        expected = network.model.generate(
            **inputs, max_new_tokens=33, min_new_tokens=33, do_sample=False, suppress_tokens=None, eos_token_id=None
        )
    assert torch.equal(given, expected[:, 8:])  # the token before them is prefill's
    assert len(set(given.flatten().tolist())) > 3, "a model that always says the same shows nothing"


def test_items_of_inference_are_the_prompt_and_what_is_decoded(saved: Saved) -> None:
    source = described(saved("GPT2LMHeadModel", "GPT2Config", **GPT2))
    sources.register(source)
    workload = plugins.workload(source.name)
    case = Case(source.name, mode="infer", batch=4, seq=16)
    assert workload.items(case) == 4 * (16 + 32)
    assert workload.items(replace(case, mode="train")) == 4 * 16


# -- weights ---------------------------------------------------------------------------------------


def test_weights_are_random_unless_they_are_asked_for(saved: Saved, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    word = saved("BertForMaskedLM", "BertConfig", **TEXTS)
    name = "bert.embeddings.word_embeddings.weight"
    own = load_file(tmp_path / "tiny" / "model.safetensors")[name]
    fresh, trained = described(word), described(word, weights=True)
    assert torch.equal(recipe_of(trained).network.model.state_dict()[name], own)
    assert not torch.equal(recipe_of(fresh).network.model.state_dict()[name], own)
    assert recipe_of(trained).notes["weights"] == "trained"
    assert fresh.name != trained.name, "one is not the other"


def test_other_weights_are_another_workload(saved: Saved, tmp_path: Path) -> None:
    word = saved("BertForMaskedLM", "BertConfig", **TEXTS)
    before = described(word, weights=True)
    path = tmp_path / "tiny" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert described(word, weights=True).name != before.name
    with pytest.raises(NotUnderstood, match="hf:tiny was changed since the run began; run it again"):
        recipe_of(before)


def test_weights_that_may_hold_code_are_not_read(saved: Saved, tmp_path: Path) -> None:
    word = saved("BertForMaskedLM", "BertConfig", **TEXTS)
    os.remove(tmp_path / "tiny" / "model.safetensors")
    with pytest.raises(NotUnderstood, match=r"hf:tiny has no weights \(\.safetensors\); omit --weights"):
        described(word, weights=True)
    (tmp_path / "tiny" / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(NotUnderstood, match=r"lie in pytorch_model\.bin, which may hold code and is not read"):
        described(word, weights=True)
    described(word)  # random ones are as good as ever


# -- what can't be had -----------------------------------------------------------------------------


def change(folder: Path, **fields: Any) -> None:
    """Change a configuration on disk."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"model_type": "zzz"}, r"transformers [\d.]+ knows no model type 'zzz'; a newer one may"),
        ({"architectures": ["ZzzModel"]}, r"transformers [\d.]+ knows no architecture 'ZzzModel'; a newer one may"),
        ({"architectures": ["torch"]}, r"knows no architecture 'torch'"),
        ({"model_type": "zzz", "auto_map": {"AutoModel": "code.Zzz"}}, "needs code from its own folder"),
        ({"hidden_size": 33}, "hf:tiny: BertForMaskedLM can't be built: ValueError: The hidden size"),
    ],
)
def test_what_transformers_does_not_know_is_a_line(
    fields: dict[str, Any], line: str, saved: Saved, tmp_path: Path
) -> None:
    word = saved("BertForMaskedLM", "BertConfig", **TEXTS)
    change(tmp_path / "tiny", **fields)
    with pytest.raises(NotUnderstood, match=line):
        described(word)


def test_code_beside_a_model_is_never_run(saved: Saved, tmp_path: Path) -> None:
    word = saved("BertForMaskedLM", "BertConfig", **TEXTS)
    ran = tmp_path / "ran"
    (tmp_path / "tiny" / "code.py").write_text(f"open({str(ran)!r}, 'w')\n")
    change(tmp_path / "tiny", auto_map={"AutoConfig": "code.Config", "AutoModelForMaskedLM": "code.Model"})
    assert described(word).item == "token"  # by transformers' own class
    assert not ran.exists()


def test_a_folder_without_a_configuration_is_a_line(tmp_path: Path) -> None:
    with pytest.raises(NotUnderstood, match=r"has no config\.json; name a folder that save_pretrained has written"):
        described(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(NotUnderstood, match="is no configuration in JSON"):
        described(f"hf:{tmp_path}")


def test_a_folder_that_is_not_there_is_a_line() -> None:
    for word in ("hf:./nope", "hf:/nope", "hf:~/nope", "hf:a/b/c"):
        with pytest.raises(UsageError, match="there is no folder"):
            sources.read(word)


def test_without_transformers_the_extra_is_named(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    word = saved("BertForMaskedLM", "BertConfig", **TEXTS)

    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(NotUnderstood, match=r"transformers is not installed for this Python; pip install 'mldyno\[hf"):
        hf.describe(torch, sources.read(word))


def test_the_title_of_a_folder_has_no_path(saved: Saved, tmp_path: Path) -> None:
    source = described(saved("BertForMaskedLM", "BertConfig", **TEXTS))
    assert source.title == "hf:tiny"
    assert source.name == f"hf:tiny@{source.digest[:8]}"
    assert Source("hf", "google/flan-t5-small", digest="").named("0123456789") == "hf:google:flan-t5-small@01234567"


# -- as a run -------------------------------------------------------------------------------------


def test_a_run_of_a_folder_is_a_record_without_its_path(saved: Saved, tmp_path: Path, store: Any) -> None:
    word = saved("GPT2LMHeadModel", "GPT2Config", **GPT2)
    results = api.run(word, mode="infer", batch=2, seq=4, threads=1, steps=2, repeats=1, store=store)
    (record,) = results.records
    assert record.status in MEASURED, record.reason
    assert record.case.workload.startswith("hf:tiny@")
    assert record.fact("phases") == "prefill, decode"
    assert record.fact("items_per_step") == 2 * (4 + 32)
    assert str(tmp_path) not in record.text


PAGE = (Path(__file__).parents[3] / "docs/how-to/measure-a-hugging-face-model.md").read_text()


def test_the_command_of_the_how_to_for_a_folder_does_what_it_says(
    saved: Saved, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = re.findall(r"^\$ mldyno (run hf:\./.*)$", PAGE, re.MULTILINE)
    saved("BertForMaskedLM", "BertConfig", name="my-bert", **TEXTS)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        cli.main([*command.split(), "--steps", "2", "--repeats", "1", "--budget", "1s", "--threads", "1", "-q"])
    out, err = capsys.readouterr()
    assert end.value.code == 0 or "unsteady" in out, err
    assert out.count("hf:my-bert@") >= 2
