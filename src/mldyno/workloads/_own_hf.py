"""Models of Hugging Face: the architecture from its configuration, weights random or trained. In the worker only.

A model lies in a folder, or in the local cache by its name. It is fetched only where the source allows it, and only
when it is described: whatever is measured later is taken from what is here. Code that lies beside a model is never run,
and weights are read from safetensors only, since other files may hold code too.

In inference a model that generates text takes a prompt into its cache of keys and values (`prefill`), and then decodes
tokens after it, one by one and each the likeliest (`decode`).
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any

from mldyno import trees
from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads import Phase, Recipe, _own_hf_inputs, _own_torch
from mldyno.workloads._own import Parts
from mldyno.workloads._own_code import NotUnderstood, check_unchanged

STARTS = "torch"
FRAMEWORKS = ("torch",)
BATCH, SEQ = 8, 128  # if nothing is said
DECODED = 32  # tokens after a prompt, as in the workload gpt2
TRIED_BATCH, TRIED_SEQ = 2, 8  # of the pass that shows what a model gives
CONFIGURATION = "config.json"
SMALL_FILES = ("*.json", "*.txt", "*.model")  # configuration, tokenizer and processor
WEIGHTS = ".safetensors"
UNSAFE_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")
CONTENT_HASH = re.compile(r"[0-9a-f]{64}")  # what the cache calls a large file
OFFLINE = "HF_HUB_OFFLINE"
FALLBACKS = ("AutoModelForSeq2SeqLM", "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForImageClassification",
             "AutoModelForAudioClassification", "AutoModel")  # fmt: skip
"""Where a configuration names no architecture: the first of these that has one for it."""


# -- where it lies ---------------------------------------------------------------------------------


def folder_of(source: Source, download: bool = False) -> str:
    """The folder with the model's files; `download`: after what is missing was fetched."""
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
    """Why a model can't be had, and what to do."""
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
        if isinstance(error, errors.LocalEntryNotFoundError):  # nor anywhere else, then
            reason = f"huggingface.co can't be reached ({reason.rpartition(': ')[2].rpartition('] ')[2]})"
        without = f"without a network, put it into a folder and name that: hf:./{name.rpartition('/')[2]}"
        raise NotUnderstood(f"{source.title} can't be fetched: {reason}; {without}") from None


def _missing(source: Source, verb: str) -> str:
    what, option = (f"the weights of {source.title}" if verb == "are" else source.title), "--weights " * source.weights
    return f"{what} {verb} not in the local cache; fetch with {option}--download, or: hf download {source.place}"


def _package(name: str, download: bool = False) -> ModuleType:
    """One of Hugging Face's packages; told before it is imported that it has no network, unless it may fetch."""
    if not download:
        os.environ[OFFLINE] = "1"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise NotUnderstood(f"{error.name} is not installed for this Python; pip install 'mldyno[hf]'") from None


def digest_of(source: Source, folder: str) -> str:
    """SHA-256 of the configuration, and of the files of its weights where it has them."""
    sha = hashlib.sha256()
    with open(os.path.join(folder, CONFIGURATION), "rb") as file:
        sha.update(file.read())
    for name in _weights_in(source, folder) if source.weights else ():
        sha.update(f"\n{name} {_content_hash(os.path.join(folder, name))}".encode())
    return sha.hexdigest()


def _content_hash(path: str) -> str:
    """SHA-256 of a file; in the cache, where files are links, it is the name of what they point to."""
    name = os.path.basename(os.path.realpath(path))
    if CONTENT_HASH.fullmatch(name):
        return name
    with open(path, "rb") as file:
        sha = hashlib.sha256()
        while part := file.read(1 << 20):
            sha.update(part)
    return sha.hexdigest()


def _weights_in(source: Source, folder: str) -> list[str]:
    """The files of its weights; raises where there are none that are safe to read."""
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


# -- what it is ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Architecture:
    """A model's class and configuration, from its folder."""

    source: Source
    folder: str

    @cached_property
    def transformers(self) -> Any:
        """The package, which keeps its advice to itself."""
        package: Any = _package("transformers")
        package.logging.set_verbosity_error()
        package.logging.disable_progress_bar()
        return package

    @cached_property
    def config(self) -> Any:
        """The configuration, by a class of transformers' own."""
        try:
            with open(os.path.join(self.folder, CONFIGURATION), encoding="utf-8") as file:
                content = json.load(file)
            kind, own_code = content.get("model_type"), content.get("auto_map")
        except (ValueError, AttributeError):
            raise NotUnderstood(f"{CONFIGURATION} of {self.source.title} is no configuration in JSON") from None
        if kind not in self.transformers.CONFIG_MAPPING:
            raise self._strange(f"model type '{kind}'", own_code)
        with self.told_in_a_line("its configuration can't be read"):
            config = self.transformers.AutoConfig.from_pretrained(
                self.folder, trust_remote_code=False, local_files_only=True
            )
        for part in {id(part): part for part in (config, config.get_text_config())}.values():
            part.use_cache = False  # but where it is asked for: training has no use for keys and values
        if getattr(config, "pad_token_id", None) is None:
            config.pad_token_id = 0  # without one, some classify a single text only
        if getattr(config, "decoder_start_token_id", None) is None:
            config.decoder_start_token_id = config.pad_token_id
        return config

    @cached_property
    def kind(self) -> Any:
        """The class that the configuration names, or the usual one for it."""
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
            return NotUnderstood(f"{title} needs code that lies beside it (trust_remote_code), which mldyno never runs")
        version = self.transformers.__version__
        return NotUnderstood(
            f"{title}: transformers {version} knows no {what}; a newer one may: pip install -U transformers"
        )

    def model(self, torch: ModuleType) -> Any:
        """The model on the CPU, in fp32; where only memory is estimated, no weights are read."""
        config = self.config
        with self.told_in_a_line(f"{self.kind.__name__} can't be built"):
            if not self.source.weights or torch.get_default_device().type == "meta":
                return self.kind(config)
            _weights_in(self.source, self.folder)
            return self.kind.from_pretrained(
                self.folder, config=config, use_safetensors=True, local_files_only=True, dtype=torch.float32
            )

    @property
    def generates(self) -> bool:
        """Whether it may go on with a text."""
        text_in = self.kind.main_input_name == "input_ids"
        return bool(text_in and self.kind.can_generate() and not self.decodes_apart)

    @property
    def decodes_apart(self) -> bool:
        """Whether it has an encoder, and a decoder beside it."""
        return bool(getattr(self.config, "is_encoder_decoder", False))

    @property
    def positions(self) -> int | None:
        """Tokens of the longest text that it takes; None where it takes any."""
        text = self.config.get_text_config()
        counts = (getattr(text, name, None) for name in ("max_position_embeddings", "max_target_positions"))
        return next((count for count in counts if isinstance(count, int) and count > 0), None)

    @contextmanager
    def told_in_a_line(self, what: str) -> Iterator[None]:
        """What goes wrong in transformers, in a line."""
        try:
            yield
        except (NotUnderstood, MemoryError):
            raise
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            if "memory" in first.lower():  # which is told apart elsewhere
                raise
            raise NotUnderstood(f"{self.source.title}: {what}: {type(error).__name__}: {first}") from error


def describe(torch: ModuleType, source: Source) -> dict[str, Any]:
    """What a plan must know of a model, from a short pass on the CPU."""
    folder = folder_of(source, source.download)
    digest, architecture = digest_of(source, folder), Architecture(source, folder)
    limit = architecture.positions or SEQ + DECODED
    decoded = min(DECODED, limit // 2) if architecture.generates else 0
    model = architecture.model(torch).eval()
    with architecture.told_in_a_line(f"{architecture.kind.__name__} can't be run"), torch.no_grad():
        inputs = _own_hf_inputs.draw(torch, architecture, TRIED_BATCH, min(TRIED_SEQ, limit), labelled=True)
        trains = _own_torch.is_loss(torch, trees.at(model(**inputs), ("loss",)))
        plain = _own_hf_inputs.draw(torch, architecture, TRIED_BATCH, min(TRIED_SEQ, limit), labelled=False)
        output = model(**plain, **({"use_cache": True} if decoded else {}))
    if getattr(output, "past_key_values", None) is None:  # it remembers in a way of its own, or not at all
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
    """What a step is made of, from the files as they were when the run began."""
    folder = folder_of(source)
    check_unchanged(source, lambda: digest_of(source, folder))
    architecture = Architecture(source, folder)
    batch, seq = case.batch or BATCH, case.seq or source.seq or SEQ
    decoded = source.decoded if case.mode == "infer" else 0
    limit = architecture.positions
    if source.seq and limit is not None and seq + decoded > limit:
        raise NotUnderstood(f"{source.title} knows {limit} positions; a sequence needs {seq + decoded}")
    inputs = _own_hf_inputs.draw(torch, architecture, batch, seq, labelled=case.mode == "train")
    recipe = _own_torch.recipe(torch, Parts(architecture.model(torch), inputs), source, case, [])
    notes = {"architecture": architecture.kind.__name__, "transformers": architecture.transformers.__version__,
             "weights": "trained" if source.weights else "random"}  # fmt: skip
    return replace(recipe, phases=_generation(torch, batch, seq, decoded) if decoded else {}, notes=notes)


def _generation(torch: ModuleType, batch: int, seq: int, decoded: int) -> dict[str, Phase]:
    """The phases in which a text is generated, with the model's own cache."""

    def prefill(network: Any, inputs: Any, _: Any) -> tuple[Any, Any]:
        """The token after the prompt, (batch, 1), and the prompt's keys and values."""
        given = network.model(**inputs, use_cache=True, **_last_only(network.model))
        return given.logits[:, -1:].argmax(-1), given.past_key_values

    def decode(network: Any, _: Any, given: tuple[Any, Any]) -> Any:
        """The tokens that follow, (batch, decoded); they stay on the device.

        No text is padded, so that there is nothing to mask.
        """
        token, cache = given
        tokens = []
        for _ in range(decoded):
            output = network.model(input_ids=token, past_key_values=cache, use_cache=True)
            token, cache = output.logits[:, -1:].argmax(-1), output.past_key_values
            tokens.append(token)
        return torch.cat(tokens, 1)

    return {"prefill": Phase(prefill, batch * seq), "decode": Phase(decode, batch * decoded)}


def _last_only(model: Any) -> dict[str, int]:
    """What makes a model give the last token's logits only, as its own `generate` does, where it can."""
    return {"logits_to_keep": 1} if "logits_to_keep" in _own_hf_inputs.parameters_of(model) else {}
