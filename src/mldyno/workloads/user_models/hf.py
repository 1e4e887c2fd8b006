"""Hugging Face models: the architecture from its configuration, with random or trained weights. In the worker only.

A model lies in a folder, or in the local cache by its name. It is downloaded only where the source allows it, and only
when it is described: a measurement uses local files. Code that comes with a model is never run, and weights are read
from safetensors only, since other files may hold code too.

In inference, a model that generates text processes a prompt into its key-value cache (`prefill`), and then decodes
tokens one by one, greedily (`decode`).

Inputs are as the tokenizer or processor would make them, but with random content. Texts have full length, without
padding, and the special tokens that the tokenizer adds. Where there is no tokenizer, or it can't be loaded, the
configuration decides. An image has the size to which the processor resizes it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from types import ModuleType
from typing import Any

from mldyno import trees
from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads import Phase, Recipe
from mldyno.workloads.user_models.code import check_unchanged, hash_files
from mldyno.workloads.user_models.frameworks import adapter_for
from mldyno.workloads.user_models.recipes import (
    BATCH,
    CHANNELS,
    IMAGE_SIDE,
    SEQ,
    NotUnderstood,
    Parts,
    is_loss,
    parameters_of,
)

STARTS = "torch"
FRAMEWORKS = ("torch",)
DECODED = 32  # tokens after a prompt, as in the workload gpt2
TRIED_BATCH, TRIED_SEQ = 2, 8  # of the forward pass that shows what a model returns
CONFIGURATION = "config.json"
SMALL_FILES = ("*.json", "*.txt", "*.model")  # of configuration, tokenizer and processor
WEIGHTS = ".safetensors"
UNSAFE_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")
CONTENT_HASH = re.compile(r"[0-9a-f]{64}")  # the name of a large file in the cache
OFFLINE = "HF_HUB_OFFLINE"
FALLBACKS = ("AutoModelForSeq2SeqLM", "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForImageClassification",
             "AutoModelForAudioClassification", "AutoModel")  # fmt: skip
"""Tried in this order where a configuration names no architecture."""
PROCESSOR = "preprocessor_config.json"
AUDIO_SAMPLES = 16_000  # one second, at the rate of most models
SPECIAL = ("pad", "bos", "eos", "sep", "cls", "mask", "unk", "decoder_start")
ANY_TEXT = "a"  # shows the special tokens that a tokenizer adds
CLASSES = ("ForSequenceClassification", "ForImageClassification", "ForAudioClassification")
TOKENS = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration")
"""Suffixes of architectures whose labels are a class, or tokens."""


# -- files ----------------------------------------------------------------------------------------


def folder_of(source: Source, download: bool = False) -> str:
    """Return the folder with the model's files; with `download`, fetch what is missing first."""
    if os.path.isabs(source.place):
        if not os.path.isfile(os.path.join(source.place, CONFIGURATION)):
            raise NotUnderstood(
                f"{source.title} has no {CONFIGURATION}; name a folder that save_pretrained has written"
            )
        return source.place
    hub = _package("huggingface_hub", download)
    with _reasons_of_hub(source, download):
        if download:
            patterns = [*SMALL_FILES, *([f"*{WEIGHTS}"] if source.weights else [])]
            return str(hub.snapshot_download(source.place, allow_patterns=patterns, ignore_patterns=["*/*"]))
        return os.path.dirname(str(hub.hf_hub_download(source.place, CONFIGURATION, local_files_only=True)))


@contextmanager
def _reasons_of_hub(source: Source, download: bool) -> Iterator[None]:
    """Turn errors of the hub into one line: why the model is not available, and what to do."""
    errors: Any = _package("huggingface_hub.errors", download)
    name = source.place
    try:
        yield
    except errors.HFValidationError:
        raise NotUnderstood(f"'{name}' is no folder here, and can't be a model's name; write hf:gpt2") from None
    except errors.GatedRepoError:
        terms = f"accept its terms at https://huggingface.co/{name}, and log in with: hf auth login"
        raise NotUnderstood(f"{source.title} is for those who were let in; {terms}") from None
    except errors.RepositoryNotFoundError:
        raise NotUnderstood(
            f"there is no model {name} at huggingface.co, or it is private; for a private one log in: hf auth login"
        ) from None
    except Exception as error:
        if not download:
            raise NotUnderstood(_missing(source, "is")) from None
        if os.environ.get(OFFLINE):
            raise NotUnderstood(f"{source.title} can't be fetched, since {OFFLINE} is set; unset it") from None
        reason = str(error).strip().partition("\n")[0]
        if isinstance(error, errors.LocalEntryNotFoundError):  # not online either
            reason = f"huggingface.co can't be reached ({reason.rpartition(': ')[2].rpartition('] ')[2]})"
        without = f"without a network, put it into a folder and name that: hf:./{name.rpartition('/')[2]}"
        raise NotUnderstood(f"{source.title} can't be fetched: {reason}; {without}") from None


def _missing(source: Source, verb: str) -> str:
    what, option = (f"the weights of {source.title}" if verb == "are" else source.title), "--weights " * source.weights
    return f"{what} {verb} not in the local cache; fetch with {option}--download, or: hf download {source.place}"


def _package(name: str, download: bool = False) -> ModuleType:
    """Import a package of Hugging Face; set it offline before that, unless it may download."""
    if not download:
        os.environ[OFFLINE] = "1"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise NotUnderstood(f"{error.name} is not installed for this Python; pip install 'mldyno[hf]'") from None


def digest_of(source: Source, folder: str) -> str:
    """Return the SHA-256 of the configuration, and of the weights where they are used."""
    sha = hashlib.sha256()
    with open(os.path.join(folder, CONFIGURATION), "rb") as file:
        sha.update(file.read())
    for name in _weights_in(source, folder) if source.weights else ():
        path = os.path.realpath(os.path.join(folder, name))
        cached = CONTENT_HASH.fullmatch(os.path.basename(path))  # in the cache, files are links to names of this kind
        sha.update(f"\n{name} {cached[0] if cached else hash_files([path])}".encode())
    return sha.hexdigest()


def _weights_in(source: Source, folder: str) -> list[str]:
    """Return the names of its weight files; raise where none are safe to read."""
    names = sorted(os.listdir(folder))
    safe = [name for name in names if name.endswith(WEIGHTS)]
    if safe:
        return safe
    if unsafe := [name for name in names if name.endswith(UNSAFE_WEIGHTS)]:
        raise NotUnderstood(
            f"the weights of {source.title} lie in {unsafe[0]}, which may hold code and is not read; save them as "
            "safetensors (save_pretrained does), or omit --weights for random ones"
        )
    if os.path.isabs(source.place):
        raise NotUnderstood(f"{source.title} has no weights ({WEIGHTS}); omit --weights for random ones")
    raise NotUnderstood(_missing(source, "are"))


# -- the architecture ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Architecture:
    """The class and configuration of a model, from its folder."""

    source: Source
    folder: str

    @cached_property
    def transformers(self) -> Any:
        """Return the package, with its messages switched off."""
        package: Any = _package("transformers")
        package.logging.set_verbosity_error()
        package.logging.disable_progress_bar()
        return package

    @cached_property
    def config(self) -> Any:
        """Return the configuration, by a class of transformers itself."""
        try:
            with open(os.path.join(self.folder, CONFIGURATION), encoding="utf-8") as file:
                content = json.load(file)
            kind, own_code = content.get("model_type"), content.get("auto_map")
        except (ValueError, AttributeError):
            raise NotUnderstood(f"{CONFIGURATION} of {self.source.title} is no configuration in JSON") from None
        if kind not in self.transformers.CONFIG_MAPPING:
            raise self._strange(f"model type '{kind}'", own_code)
        with self.reporting_errors("its configuration can't be read"):
            config = self.transformers.AutoConfig.from_pretrained(
                self.folder, trust_remote_code=False, local_files_only=True
            )
        for part in {id(part): part for part in (config, config.get_text_config())}.values():
            part.use_cache = False  # unless asked for: training needs no key-value cache
        if getattr(config, "pad_token_id", None) is None:
            config.pad_token_id = 0  # without one, some models classify a single text only
        if getattr(config, "decoder_start_token_id", None) is None:
            config.decoder_start_token_id = config.pad_token_id
        return config

    @cached_property
    def kind(self) -> Any:
        """Return the class that the configuration names, or the default class for it."""
        names = getattr(self.config, "architectures", None) or ()
        if not names:
            mappings = (getattr(self.transformers, name)._model_mapping for name in FALLBACKS)
            usual = next((mapping[type(self.config)] for mapping in mappings if type(self.config) in mapping), None)
            return usual[0] if isinstance(usual, tuple) else usual
        kind = getattr(self.transformers, names[0], None)
        if not isinstance(kind, type) or not hasattr(kind, "main_input_name"):
            raise self._strange(f"architecture '{names[0]}'", getattr(self.config, "auto_map", None))
        return kind

    def _strange(self, what: str, own_code: Any) -> NotUnderstood:
        title = self.source.title
        if own_code:
            return NotUnderstood(f"{title} needs code from its own folder (trust_remote_code), which mldyno never runs")
        version = self.transformers.__version__
        return NotUnderstood(
            f"{title}: transformers {version} knows no {what}; a newer one may: pip install -U transformers"
        )

    def model(self, torch: ModuleType) -> Any:
        """Return the model on the CPU, in fp32; read no weights where only memory is estimated."""
        config = self.config
        with self.reporting_errors(f"{self.kind.__name__} can't be built"):
            if not self.source.weights or torch.get_default_device().type == "meta":
                return self.kind(config)
            _weights_in(self.source, self.folder)
            return self.kind.from_pretrained(
                self.folder, config=config, use_safetensors=True, local_files_only=True, dtype=torch.float32
            )

    @property
    def forward_parameters(self) -> Collection[str]:
        """Return the names of the parameters of its forward pass."""
        return (parameters_of(self.kind) or {}).keys()

    @property
    def generates(self) -> bool:
        text_in = self.kind.main_input_name == "input_ids"
        return bool(text_in and self.kind.can_generate() and not self.has_decoder)

    @property
    def has_decoder(self) -> bool:
        return bool(getattr(self.config, "is_encoder_decoder", False))

    @property
    def positions(self) -> int | None:
        """Return the tokens of the longest text that it takes; None where there is no limit."""
        text = self.config.get_text_config()
        counts = (getattr(text, name, None) for name in ("max_position_embeddings", "max_target_positions"))
        return next((count for count in counts if isinstance(count, int) and count > 0), None)

    @contextmanager
    def reporting_errors(self, what: str) -> Iterator[None]:
        """Turn an error in transformers into one line."""
        try:
            yield
        except (NotUnderstood, MemoryError):
            raise
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            if "memory" in first.lower():  # reported as out of memory elsewhere
                raise
            raise NotUnderstood(f"{self.source.title}: {what}: {type(error).__name__}: {first}") from error


def describe(torch: ModuleType, source: Source) -> dict[str, Any]:
    """Return what a plan must know of a model, from a short forward pass on the CPU."""
    folder = folder_of(source, source.download)
    digest, architecture = digest_of(source, folder), Architecture(source, folder)
    limit = architecture.positions or SEQ + DECODED
    decoded = min(DECODED, limit // 2) if architecture.generates else 0
    model = architecture.model(torch).eval()
    with architecture.reporting_errors(f"{architecture.kind.__name__} can't be run"), torch.no_grad():
        inputs = draw_inputs(torch, architecture, TRIED_BATCH, min(TRIED_SEQ, limit), labelled=True)
        trains = is_loss(trees.at(model(**inputs), ("loss",)))
        plain = draw_inputs(torch, architecture, TRIED_BATCH, min(TRIED_SEQ, limit), labelled=False)
        output = model(**plain, **({"use_cache": True} if decoded else {}))
    if getattr(output, "past_key_values", None) is None:  # it has another kind of cache, or none
        decoded = 0
    seq = max(1, min(SEQ, limit - decoded)) if "input_ids" in plain or "decoder_input_ids" in plain else None
    item = "token" if "input_ids" in plain and "pixel_values" not in plain else "sample"
    return {
        "digest": digest, "batch": BATCH, "seq": seq, "item": "image" if "pixel_values" in plain else item,
        "items": BATCH * (seq or 1 if item == "token" else 1), "decoded": decoded,
        "output": "loss" if trains else "tree", "modes": ("train", "infer") if trains else ("infer",),
        "loss": ("loss",), "loss_inputs": ("labels",),
    }  # fmt: skip


# -- the recipe ------------------------------------------------------------------------------------


def build(source: Source, torch: ModuleType, case: Case) -> Recipe:
    """Return the recipe of a case; raise where the files have changed since the run began."""
    folder = folder_of(source)
    check_unchanged(source, lambda: digest_of(source, folder))
    architecture = Architecture(source, folder)
    batch, seq = case.batch or BATCH, case.seq or source.seq or SEQ
    decoded = source.decoded if case.mode == "infer" else 0
    limit = architecture.positions
    if source.seq and limit is not None and seq + decoded > limit:
        raise NotUnderstood(f"{source.title} knows {limit} positions; a sequence needs {seq + decoded}")
    inputs = draw_inputs(torch, architecture, batch, seq, labelled=case.mode == "train")
    recipe = adapter_for("torch", torch).recipe(Parts(architecture.model(torch), inputs), source, case, [])
    notes = {"architecture": architecture.kind.__name__, "transformers": architecture.transformers.__version__,
             "weights": "trained" if source.weights else "random"}  # fmt: skip
    phases = _generation(torch, architecture.forward_parameters, batch, seq, decoded) if decoded else {}
    return replace(recipe, phases=phases, notes=notes)


def _generation(torch: ModuleType, takes: Collection[str], batch: int, seq: int, decoded: int) -> dict[str, Phase]:
    """Return the phases of generation, with the model's own cache."""
    last_only = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}  # as `generate` does

    def prefill(network: Any, inputs: Any, _: Any) -> tuple[Any, Any]:
        """Return the token after the prompt, (batch, 1), and the prompt's keys and values."""
        output = network.model(**inputs, use_cache=True, **last_only)
        return output.logits[:, -1:].argmax(-1), output.past_key_values

    def decode(network: Any, _: Any, given: tuple[Any, Any]) -> Any:
        """Return the tokens that follow, (batch, decoded), on the device; no text is padded, so nothing is masked."""
        token, cache = given
        tokens = []
        for _ in range(decoded):
            output = network.model(input_ids=token, past_key_values=cache, use_cache=True)
            token, cache = output.logits[:, -1:].argmax(-1), output.past_key_values
            tokens.append(token)
        return torch.cat(tokens, 1)

    return {"prefill": Phase(prefill, batch * seq), "decode": Phase(decode, batch * decoded)}


# -- inputs ----------------------------------------------------------------------------------------


def draw_inputs(torch: ModuleType, architecture: Architecture, batch: int, seq: int, labelled: bool) -> dict[str, Any]:
    """Return the inputs of one batch by name; with labels for the model's head, if asked for and it takes some."""
    kind, config = architecture.kind, architecture.config
    takes, main = architecture.forward_parameters, kind.main_input_name
    tensors: dict[str, Any] = {}
    if main == "input_ids":
        tensors |= _texts(torch, architecture, batch, seq)
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


def _texts(torch: ModuleType, architecture: Architecture, batch: int, seq: int) -> Any:
    """Return token ids, and what else the tokenizer returns with them."""
    config, tokenizer = architecture.config.get_text_config(), _tokenizer(architecture.folder)
    takes = architecture.forward_parameters
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


@cache
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
    processor: Any = None
    with suppress(OSError, ValueError), open(os.path.join(folder, PROCESSOR), encoding="utf-8") as file:
        processor = json.load(file)
    for name in ("crop_size", "size") if isinstance(processor, dict) else ():
        if (size := _height_and_width(processor.get(name))) and processor.get(f"do_{name}", True) is not False:
            height, width = size
            break
    return int(getattr(vision, "num_channels", None) or CHANNELS), int(height), int(width)


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
