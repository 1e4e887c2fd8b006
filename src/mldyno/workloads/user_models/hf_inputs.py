"""Batches for Hugging Face models, as their tokenizer or processor would make them, but with random content.

Texts have full length, without padding. They have the special tokens that the tokenizer adds, and its other outputs.
Where there is no tokenizer, or it can't be loaded, the configuration decides. An image has the size to which the
processor resizes it.
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
    from mldyno.workloads.user_models.hf import Architecture

PROCESSOR = "preprocessor_config.json"
IMAGE_SIDE, CHANNELS = 224, 3  # defaults
AUDIO_SAMPLES = 16_000  # one second, at the rate of most models
SPECIAL = ("pad", "bos", "eos", "sep", "cls", "mask", "unk", "decoder_start")
ANY_TEXT = "a"  # shows the special tokens that a tokenizer adds
CLASSES = ("ForSequenceClassification", "ForImageClassification", "ForAudioClassification")
TOKENS = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration")
"""Suffixes of architectures whose labels are a class, or tokens."""


@functools.cache
def parameters_of(model: Any) -> Collection[str]:
    """Return the parameters of the forward pass of a model, or of a model class."""
    return inspect.signature(model.forward).parameters.keys()


def draw(torch: ModuleType, architecture: Architecture, batch: int, seq: int, labelled: bool) -> dict[str, Any]:
    """Return the inputs of one batch by name; with labels for the model's head, if asked for and it takes some."""
    kind, config = architecture.kind, architecture.config
    takes, main = parameters_of(kind), kind.main_input_name
    tensors: dict[str, Any] = {}
    if main == "input_ids":
        tensors |= _texts(torch, architecture, batch, seq, takes)
    elif main == "input_values":
        tensors[main] = torch.randn(batch, AUDIO_SAMPLES)
    elif main == "input_features":
        tensors[main] = torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions)
    two_towers = hasattr(config, "vision_config") and not kind.can_generate()  # one for texts, one for images
    if main == "pixel_values" or (two_towers and "pixel_values" in takes):
        tensors["pixel_values"] = torch.randn(batch, *_image_shape(config, architecture.folder))
    labels = _labels(torch, architecture, batch, seq, tensors.get("input_ids")) if labelled else {}
    if architecture.has_decoder and "labels" not in labels and "decoder_input_ids" in takes:
        tensors["decoder_input_ids"] = _words(torch, architecture, batch, seq)
    return {**tensors, **{name: tensor for name, tensor in labels.items() if name in takes}}


# -- texts -----------------------------------------------------------------------------------------


def _texts(torch: ModuleType, architecture: Architecture, batch: int, seq: int, takes: Collection[str]) -> Any:
    """Return token ids, and what else the tokenizer returns with them."""
    config, tokenizer = architecture.config.get_text_config(), _tokenizer(architecture.folder)
    ids = _words(torch, architecture, batch, seq)
    before, after = _added(tokenizer, architecture)
    if len(before) + len(after) < seq:
        ids[:, : len(before)] = torch.tensor(before, dtype=ids.dtype)
        ids[:, seq - len(after) :] = torch.tensor(after, dtype=ids.dtype)
    usual = ["attention_mask", *(["token_type_ids"] if (getattr(config, "type_vocab_size", 0) or 0) > 1 else [])]
    also = usual if tokenizer is None else tokenizer.model_input_names
    tensors = {"input_ids": ids}
    if "attention_mask" in also and "attention_mask" in takes and ids.device.type != "meta":
        tensors["attention_mask"] = torch.ones_like(ids)  # transformers reads the mask, which `meta` has no values of
    if "token_type_ids" in also and "token_type_ids" in takes:
        tensors["token_type_ids"] = torch.zeros_like(ids)
    return tensors


def _words(torch: ModuleType, architecture: Architecture, batch: int, seq: int) -> Any:
    """Return random ids (batch, seq) of tokens that are not special."""
    config, tokenizer = architecture.config.get_text_config(), _tokenizer(architecture.folder)
    vocabulary = config.vocab_size if tokenizer is None else min(len(tokenizer), config.vocab_size)
    named = [getattr(config, f"{name}_token_id", None) for name in SPECIAL]
    special = {token for token in named if isinstance(token, int)} | set(tokenizer.all_special_ids if tokenizer else ())
    plain = next((token for token in range(vocabulary) if token not in special), 0)
    ids = torch.randint(vocabulary, (batch, seq))
    for token in special:
        ids = ids.masked_fill(ids == token, plain)
    return ids


def _added(tokenizer: Any, architecture: Architecture) -> tuple[list[int], list[int]]:
    """Return the special tokens before and after a text."""
    if tokenizer is None:
        end = getattr(architecture.config, "eos_token_id", None) if architecture.has_decoder else None
        return [], [end] if isinstance(end, int) else []
    encoded = tokenizer(ANY_TEXT, return_special_tokens_mask=True)
    ids, special = list(encoded["input_ids"]), list(encoded["special_tokens_mask"])
    if 0 not in special:
        return [], []
    first, last = special.index(0), len(special) - special[::-1].index(0)
    return ids[:first], ids[last:]


@functools.cache
def _tokenizer(folder: str) -> Any:
    """Return the tokenizer in the model's folder; None where none can be loaded."""
    if not any(name.startswith(("tokenizer", "vocab", "spiece", "merges")) for name in os.listdir(folder)):
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception:  # it needs a package that is not installed, or its own code
        return None


# -- images ----------------------------------------------------------------------------------------


def _image_shape(config: Any, folder: str) -> tuple[int, int, int]:
    """Return channels, height and width of an image, by the processor or else by the configuration."""
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
    """Return labels from which the model's head computes its loss; nothing for an unknown head."""
    name, config = architecture.kind.__name__, architecture.config
    classes = getattr(config, "num_labels", 0)
    if name.endswith(CLASSES):
        return {"labels": _classes(torch, batch, classes, getattr(config, "problem_type", None))}
    if name.endswith("ForTokenClassification"):
        return {"labels": torch.randint(classes, (batch, seq))}
    if name.endswith("ForQuestionAnswering"):
        return {place: torch.randint(seq, (batch,)) for place in ("start_positions", "end_positions")}
    if name.endswith(TOKENS):
        decoder = architecture.has_decoder or ids is None
        return {"labels": _words(torch, architecture, batch, seq) if decoder else ids.clone()}
    return {}


def _classes(torch: ModuleType, batch: int, classes: int, problem: str | None) -> Any:
    """Return a class for each item; or several classes, or numbers, by the model's problem type."""
    if problem == "multi_label_classification":
        return torch.randint(2, (batch, classes)).float()
    if classes == 1 or problem == "regression":
        return torch.randn(batch) if classes == 1 else torch.randn(batch, classes)
    return torch.randint(classes, (batch,))
