"""Batches for models of Hugging Face, as their tokenizer or processor would make them, but of random content.

Texts have their full length: nothing is padded. Around them stand the special tokens that the tokenizer adds, and they
come with what else it gives. Where there is no tokenizer, or it can't be loaded, the configuration says what fits. An
image has the size to which the processor brings it.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mldyno.workloads._own_hf import Architecture

PROCESSOR = "preprocessor_config.json"
IMAGE_SIDE, CHANNELS = 224, 3  # where nothing says it
SOUND_SAMPLES = 16_000  # one second, at the rate of most models
SPECIAL = ("pad", "bos", "eos", "sep", "cls", "mask", "unk", "decoder_start")
ANY_TEXT = "a"  # which shows the special tokens that a tokenizer adds
CLASSES = ("ForSequenceClassification", "ForImageClassification", "ForAudioClassification")
TOKENS = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration")
"""Ends of the names of architectures, by what their labels are: a class, or tokens."""


@functools.cache
def parameters_of(model: Any) -> Collection[str]:
    """What the forward pass of a model, or of a class of them, takes by name."""
    return inspect.signature(model.forward).parameters.keys()


def draw(torch: ModuleType, architecture: Architecture, batch: int, seq: int, labelled: bool) -> dict[str, Any]:
    """The inputs of one batch by their names; with labels for the model's head, where it has one that learns."""
    kind, config = architecture.kind, architecture.config
    takes, main = parameters_of(kind), kind.main_input_name
    tensors: dict[str, Any] = {}
    if main == "input_ids":
        tensors |= _texts(torch, architecture, batch, seq, takes)
    elif main == "input_values":
        tensors[main] = torch.randn(batch, SOUND_SAMPLES)
    elif main == "input_features":
        tensors[main] = torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions)
    two_towers = hasattr(config, "vision_config") and not kind.can_generate()  # texts and images, each by itself
    if main == "pixel_values" or (two_towers and "pixel_values" in takes):
        tensors["pixel_values"] = torch.randn(batch, *_image_shape(config, architecture.folder))
    labels = _labels(torch, architecture, batch, seq, tensors.get("input_ids")) if labelled else {}
    if architecture.decodes_apart and "labels" not in labels and "decoder_input_ids" in takes:
        tensors["decoder_input_ids"] = _words(torch, architecture, batch, seq)
    return {**tensors, **{name: tensor for name, tensor in labels.items() if name in takes}}


# -- texts -----------------------------------------------------------------------------------------


def _texts(torch: ModuleType, architecture: Architecture, batch: int, seq: int, takes: Collection[str]) -> Any:
    """Token ids, and what else the tokenizer gives with them."""
    config, tokenizer = architecture.config.get_text_config(), tokenizer_of(architecture)
    ids = _words(torch, architecture, batch, seq)
    before, after = _added(tokenizer, architecture)
    if len(before) + len(after) < seq:
        ids[:, : len(before)] = torch.tensor(before, dtype=ids.dtype)
        ids[:, seq - len(after) :] = torch.tensor(after, dtype=ids.dtype)
    usual = ["attention_mask", *(["token_type_ids"] if (getattr(config, "type_vocab_size", 0) or 0) > 1 else [])]
    also = usual if tokenizer is None else tokenizer.model_input_names
    tensors = {"input_ids": ids}
    if "attention_mask" in also and "attention_mask" in takes and ids.device.type != "meta":
        tensors["attention_mask"] = torch.ones_like(ids)  # without memory nobody can see that nothing is masked
    if "token_type_ids" in also and "token_type_ids" in takes:
        tensors["token_type_ids"] = torch.zeros_like(ids)
    return tensors


def _words(torch: ModuleType, architecture: Architecture, batch: int, seq: int) -> Any:
    """Random ids (batch, seq) of tokens that are not special."""
    config, tokenizer = architecture.config.get_text_config(), tokenizer_of(architecture)
    vocabulary = config.vocab_size if tokenizer is None else min(len(tokenizer), config.vocab_size)
    named = [getattr(config, f"{name}_token_id", None) for name in SPECIAL]
    special = {each for each in named if isinstance(each, int)} | set(tokenizer.all_special_ids if tokenizer else ())
    plain = next((each for each in range(vocabulary) if each not in special), 0)
    ids = torch.randint(vocabulary, (batch, seq))
    for each in special:
        ids = ids.masked_fill(ids == each, plain)
    return ids


def _added(tokenizer: Any, architecture: Architecture) -> tuple[list[int], list[int]]:
    """The special tokens that stand before and after a text."""
    if tokenizer is None:
        end = getattr(architecture.config, "eos_token_id", None) if architecture.decodes_apart else None
        return [], [end] if isinstance(end, int) else []
    given = tokenizer(ANY_TEXT, return_special_tokens_mask=True)
    ids, special = list(given["input_ids"]), list(given["special_tokens_mask"])
    if 0 not in special:
        return [], []
    first, last = special.index(0), len(special) - special[::-1].index(0)
    return ids[:first], ids[last:]


def tokenizer_of(architecture: Architecture) -> Any:
    """The tokenizer that lies beside the model; None where there is none that can be loaded."""
    return _tokenizer(architecture.folder)


@functools.cache
def _tokenizer(folder: str) -> Any:
    if not any(name.startswith(("tokenizer", "vocab", "spiece", "merges")) for name in os.listdir(folder)):
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception:  # a package that it needs is not installed, or it has code of its own: the configuration serves
        return None


# -- images ----------------------------------------------------------------------------------------


def _image_shape(config: Any, folder: str) -> tuple[int, int, int]:
    """Channels, height and width of an image, as the processor gives it, else as the configuration says."""
    vision = getattr(config, "vision_config", config)
    side = getattr(vision, "image_size", None) or IMAGE_SIDE
    height, width = side if isinstance(side, list | tuple) else (side, side)
    processor = _processor_in(folder)
    for name in ("crop_size", "size"):
        if (size := _height_and_width(processor.get(name))) and processor.get(f"do_{name}", True) is not False:
            height, width = size
            break
    return int(getattr(vision, "num_channels", None) or CHANNELS), int(height), int(width)


def _processor_in(folder: str) -> Mapping[str, Any]:
    try:
        with open(os.path.join(folder, PROCESSOR), encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _height_and_width(size: Any) -> tuple[int, int] | None:
    if isinstance(size, int):
        return size, size
    if isinstance(size, dict):
        sides = size.get("height", size.get("shortest_edge")), size.get("width", size.get("shortest_edge"))
        return sides if all(isinstance(side, int) for side in sides) else None  # type: ignore[return-value]
    return None


# -- labels ----------------------------------------------------------------------------------------


def _labels(torch: ModuleType, architecture: Architecture, batch: int, seq: int, ids: Any) -> dict[str, Any]:
    """Labels for the model's head, from which it makes its loss; nothing where that is not known."""
    name, config = architecture.kind.__name__, architecture.config
    classes = getattr(config, "num_labels", 0)
    if name.endswith(CLASSES):
        return {"labels": _classes(torch, batch, classes, getattr(config, "problem_type", None))}
    if name.endswith("ForTokenClassification"):
        return {"labels": torch.randint(classes, (batch, seq))}
    if name.endswith("ForQuestionAnswering"):
        return {place: torch.randint(seq, (batch,)) for place in ("start_positions", "end_positions")}
    if name.endswith(TOKENS):
        decoder = architecture.decodes_apart or ids is None
        return {"labels": _words(torch, architecture, batch, seq) if decoder else ids.clone()}
    return {}


def _classes(torch: ModuleType, batch: int, classes: int, problem: str | None) -> Any:
    """A class for each item; or several of them, or numbers, where that is the model's problem."""
    if problem == "multi_label_classification":
        return torch.randint(2, (batch, classes)).float()
    if classes == 1 or problem == "regression":
        return torch.randn(batch) if classes == 1 else torch.randn(batch, classes)
    return torch.randint(classes, (batch,))
