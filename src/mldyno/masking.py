"""Passwords, tokens and keys in a command or a setting, replaced before anything is stored or shown.

Rules: a secret is known by its name (`--token X`, `PASSWORD=X`, `Authorization: X`, `user:X@host`), by the shape that
its issuer gave it, or by being long and random. What is masked stays masked: masking twice changes nothing.
Standard library only.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

MASK = "MASKED"
LONG_WORD = 24  # letters and digits from which on a random word is taken for a key
LEAST_PARTS = 0.35  # for each letter of a random word; names such as ResNet50Checkpoint have longer parts

_NAME = (
    r"[\w.-]{0,60}(?:passw(?:or)?d|passphrase|passwd|pwd|secret|credentials?|bearer|api[-_]?keys?|access[-_]?key|"
    r"private[-_]?key|token(?![a-z])|(?<![a-z])(?:pass|auth)(?![a-z]))(?:[-_.][\w.-]{0,40})?"
)
_NAMES_NO_SECRET = r"(?:files?|path|dir|folder|name|type|url|len|length|count|size|id|ids|limit)"
_VALUE = r"""(?:'[^']*'|"[^"]*"|[^\s'"&;,)}\]]+)"""
_KEY_SHAPES = (
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",  # Amazon
    r"\bgh[pousr]_\w{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}",  # GitHub, GitLab
    r"\bhf_\w{16,}|\bsk-[\w-]{16,}|\br8_\w{16,}",  # Hugging Face, OpenAI and Anthropic, Replicate
    r"\bxox[a-z]-[\w-]{8,}|\bxapp-[\w-]{8,}",  # Slack
    r"\bAIza[\w-]{30,}|\bya29\.[\w-]{16,}",  # Google
    r"\bnpm_\w{30,}|\bpypi-[\w-]{16,}",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?",  # a JSON web token
    r"-----BEGIN[ A-Z]*PRIVATE KEY-----[\s\S]*",
)
_NAMED = re.compile(rf"(?i)((?<![\w.-])(-{{0,2}}{_NAME})['\"]?\s*[=:]\s*(?:(?:bearer|basic|token)\s+)?)({_VALUE})")
_FLAG = re.compile(rf"(?i)((?<![\w.-])(--?{_NAME})\s+)(?!-)({_VALUE})")
_FLAG_ALONE = re.compile(rf"(?i)--?{_NAME}")
_HEADER = re.compile(r"(?i)(\b(?:proxy-)?authorization['\"]?\s*[=:]\s*['\"]?(?:\w+\s+)?)([^\s'\"]+)")
_BEARER = re.compile(r"(?i)(\bbearer\s+)([\w.~+/=-]{8,})")
_IN_ADDRESS = re.compile(r"(://[^/\s:@'\"]*:)([^/\s'\"]+)(?=@)")
_USER = re.compile(r"((?<!\S)(?:-u|--user)[ =][^\s:'\"]+:)(?!\d+(?!\S))([^\s'\"]+)")
_SHAPE = re.compile("|".join(_KEY_SHAPES))
_LONG = re.compile(rf"(?<![\w+=-])(?P<name>--?[\w-]+=|[A-Za-z]\w*[=:])?(?P<word>[\w+-]{{{LONG_WORD},}}=*)(?![\w+=-])")
_CHECKSUM = re.compile(r"(?i)(?:rev|revision|commit|sha\d*|md5|hash|digest|checksum|uuid)[=:]?$")
_HEX = re.compile("[0-9a-f]+|[0-9A-F]+")
_NO_SECRET = re.compile(rf"(?i).*[-_.]{_NAMES_NO_SECRET}$")
_A_NUMBER = re.compile(r"[\d.,]{1,7}")


def masked(text: str) -> str:
    """A text, such as a setting or what a command said, without its secrets."""
    text = _SHAPE.sub(MASK, text)
    text = _IN_ADDRESS.sub(rf"\1{MASK}", text)
    text = _HEADER.sub(rf"\1{MASK}", text)
    text = _BEARER.sub(rf"\1{MASK}", text)
    text = _USER.sub(rf"\1{MASK}", text)
    text = _NAMED.sub(_value_masked, text)
    text = _FLAG.sub(_value_masked, text)
    return _LONG.sub(_long_masked, text)


def masked_words(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command without their secrets: what stands behind `--token`, and all that `masked` knows."""
    hidden: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if before in ("-u", "--user"):
            hidden.append(masked(f"{before} {word}")[len(before) + 1 :])
        elif _FLAG_ALONE.fullmatch(before) and not word.startswith("-") and _is_secret(before, word):
            hidden.append(MASK)
        elif before.startswith("-") and _CHECKSUM.search(before) and _HEX.fullmatch(word):
            hidden.append(word)
        else:
            hidden.append(masked(word))
    return tuple(hidden)


def masked_line(words: Sequence[str]) -> str:
    """A command as it is typed, without its secrets."""
    return shlex.join(masked_words(words))


def _is_secret(name: str, value: str) -> bool:
    """Whether that is the value of a secret: `--token-file` names a file, and a token that is a number is a count."""
    return not _NO_SECRET.match(name) and not ("token" in name.lower() and _A_NUMBER.fullmatch(value))


def _value_masked(match: re.Match[str]) -> str:
    before, name, value = match.groups()
    return f"{before}{MASK}" if _is_secret(name, value) else match.group()


def _long_masked(match: re.Match[str]) -> str:
    name, word = match["name"] or "", match["word"]
    return f"{name}{MASK}" if _is_random(word) and not _CHECKSUM.search(name) else match.group()


def _is_random(word: str) -> bool:
    """Whether a long word looks like a key: hexadecimal digits only, or capitals, small letters and digits mixed up."""
    letters = [letter for letter in word if letter.isalnum()]
    if len(letters) >= 32 and _HEX.fullmatch(word):
        return True
    parts = re.findall("[A-Z]?[a-z]+|[A-Z]+|[0-9]+", word)
    return len({_kind(letter) for letter in letters}) == 3 and len(parts) >= LEAST_PARTS * len(letters)


def _kind(letter: str) -> str:
    return "digit" if letter.isdigit() else "capital" if letter.isupper() else "small"
