"""Mask passwords, tokens and keys in commands and settings before anything is stored or shown.

Rules: a secret is known by its name (`--token X`, `PASSWORD=X`, `Authorization: X`, `user:X@host`), by what
precedes it (`sshpass -p X`), by the shape that its issuer gave it, or by being long and random. What is masked stays
masked: masking twice changes nothing. To know one more kind, add an entry to a table.
Standard library only.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

MASK = "MASKED"
LONG_WORD = 24  # letters and digits from which on a random word is taken for a key
LEAST_PARTS = 0.35  # for each letter of a random word; names such as ResNet50Checkpoint have longer parts

# What the keys of an issuer begin with; 14 letters, digits, dashes and underscores or more follow.
PREFIXES = {
    "GitHub": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "GitLab": ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-"),
    "Hugging Face, Replicate, NVIDIA, Groq, xAI": ("hf_", "api_org_", "r8_", "nvapi-", "gsk_", "xai-"),
    "OpenAI, Anthropic, Perplexity, LangSmith, Pinecone": ("sk-", "pplx-", "lsv2_", "pcsk_"),
    "Weights & Biases": ("wandb_v1_",),
    "Google": ("AIza", "ya29\\.", "GOCSPX-"),
    "Stripe": ("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),
    "SendGrid, DigitalOcean": ("SG\\.", "dop_v1_", "doo_v1_", "dor_v1_"),
    "PyPI, RubyGems, Docker": ("pypi-", "rubygems_", "dckr_pat_", "dckr_oat_"),
    "HashiCorp, Doppler": ("hvs\\.", "hvb\\.", "dp\\.pt\\.", "dp\\.st\\."),
    "Grafana, New Relic, Sentry": ("glsa_", "glc_", "NRAK-", "sntrys_", "sntryu_"),
    "Shopify, Square, Notion, Linear": ("shpat_", "shpss_", "sq0atp-", "sq0csp-", "ntn_", "lin_api_"),
    "Postman, Figma, Atlassian, Heroku": ("PMAK-", "figd_", "ATATT3", "HRKU-"),
    "PlanetScale, Supabase, age": ("pscale_tkn_", "sbp_", "AGE-SECRET-KEY-1"),
}
SHAPES = {
    "Amazon": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "Slack": r"\bxox[a-z]-[\w-]{8,}|\bxapp-[\w-]{8,}",
    "Slack's and Discord's hooks": r"(?<=hooks\.slack\.com/services/)[\w/]+|(?<=/api/webhooks/)\d+/[\w-]+",
    "Databricks": r"\bdapi[0-9a-f]{32}(?:-\d)?\b",
    "Twilio": r"\bSK[0-9a-f]{32}\b",
    "Telegram": r"(?<![\d:])\d{8,10}:[\w-]{35}(?![\w-])",
    "npm": r"\bnpm_\w{30,}",
    "a JSON web token": r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?",
    "a private key": r"-----BEGIN[ A-Z]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*",
}
# What precedes a secret in a command's words or in a text: <gap> is between two words, <others> are some words.
BEFORE = {
    "sshpass": "sshpass<gap><others>-p<gap>?",
    "MySQL, 7-Zip": "(?:mysql|mysqldump|mysqladmin|mysqlimport|mariadb|mariadb-dump|7z|7za)<gap><others>-p",
    "Redis": "redis-cli<gap><others>-a<gap>",
    "zip, SQL Server": "(?:zip|unzip|sqlcmd|bcp)<gap><others>-P<gap>",
    "LDAP": "ldap[a-z]+<gap><others>-w<gap>",
    "MongoDB": "mongo[a-z]*<gap><others>-p<gap>",
    "curl's cookies": r"curl<gap><others>(?:-b|--cookie)<gap>?(?=[\w.-]+=)",
    "OpenSSL": "openssl<gap><others>-pass(?:in|out)?<gap>pass:",
    "the AWS CLI": r"aws<gap>configure<gap>set<gap>[\w.-]*(?:secret|token)[\w.-]*<gap>",
    "Vault": "vault<gap>login<gap>(?!-)",
    "an access key of Amazon": "(?:AKIA|ASIA)[0-9A-Z]{16}(?:<gap>|:)(?=[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))",
    "netrc": "login<gap><word><gap>password<gap>",
    "registries and clouds": "(?:docker|podman|nerdctl|skopeo|helm|az)<gap><others>login<gap><others>-p<gap>?",
    "Weights & Biases": r"wandb<gap>login<gap>(?:--?[\w-]+<gap>){0,5}(?!-)",
    "npm": r"(?:npm|yarn|pnpm)<gap>config<gap>set<gap>[\w./:@-]{0,99}(?:_auth|_password|token)\w{0,9}<gap>",
    "curl's users": r"curl<gap><others>-[a-zA-Z]{1,9}u<gap>?[^\s\0:]{1,99}:",
    "HTTPie": r"https?<gap><others>-a<gap>[^\s\0:]{1,99}:",
    "Samba": r"(?:smbclient|rpcclient)<gap><others>-U<gap>?[^\s\0%]{1,99}%",
    "Kubernetes": r"kubectl<gap><others>create<gap>secret<gap><others>--from-literal(?:=|<gap>)[\w.-]{1,99}=",
    "ngrok": r"ngrok<gap>(?:config<gap>add-)?authtoken<gap>",
    "RabbitMQ": r"rabbitmqctl<gap><others>(?:add_user|change_password)<gap><word><gap>",
    "MQTT": "mosquitto_(?:pub|sub|rr)<gap><others>-P<gap>",
    "curl's certificates": r"curl<gap><others>(?:-E|--(?:proxy-)?cert)<gap>?[^\s\0:]{1,199}:",
    "Oracle": r"(?:sqlplus|sqlldr|expdp|impdp)<gap><others>(?!-)[^\s\0/@]{1,99}/(?=[^\s\0/@]{1,99}@)",
    "Cassandra": "cqlsh<gap><others>-p<gap>",
    "rclone": r"rclone<gap>config<gap>(?:create|update|password)<gap><others>(?:pass|password|secret|token)<gap>",
    "DVC": r"dvc<gap>remote<gap>modify<gap><others>(?:password|secret_access_key|account_key|sas_token)<gap>",
    "passphrases of keys": "(?:ssh-keygen<gap><others>-[NP]|openssl<gap>enc<gap><others>-[kK])<gap>",
}
IN_WORDS = {"<others>": "(?:<word><gap>){0,20}?", "<word>": r"[^\0]+", "<gap>": r"\0"}
IN_TEXT = {"<others>": "(?:<word><gap>){0,20}?", "<word>": r"\S{1,200}", "<gap>": r"\s{1,9}"}

_NAME = (
    r"[\w.-]{0,60}(?:passw(?:or)?d|passphrase|passwd|pwd|secret|credentials?|bearer|api[-_]?keys?|(?:store|key)pass|"
    r"jwt(?![a-z])|mnemonic|(?:seed|pass|recovery)[-_]phrase|"
    r"(?:access|account|private|secret|shared|master|(?:en|de)cryption|signing|subscription|licen[cs]e|session)[-_]?key|token(?![a-z])|"
    r"(?<![a-z])(?:pass|passcode|pw|auth|otp)(?![a-z]))(?:[-_.][\w.-]{0,40})?"
)
_NAMES_NO_SECRET = (
    r"(?:files?|path|dir|folder|name|type|url|len|length|count|size|id|ids|limit|env|var|stdin|method|mode|header)"
)
_VALUE = r"""(?:'[^']*'|"[^"]*"|(?:\\.|[^\s'"&;,)}\]\\])+)"""
_ADJECTIVE = r"(?:an?|the|not|too|no|none|null|empty|invalid|missing|required|wrong|incorrect|expired|needed|set)\b"
# Each is followed by a secret, which the second group holds.
RULES = {
    "a token in an address": r"((?i:https?)://)((?!git@)[^/\s:@'\"]+)(?=(?::(?:x-oauth-basic)?)?@)",
    "a password in an address": r"(://[^/\s:@'\"]*:)([^/\s'\"]+)(?=@)",
    "a signature or key in an address": r"(?i)([?&](?:[\w-]*sig(?:nature)?|key)=)([^&\s'\"#]+)",
    "a header of authorization": r"(?i)(\b(?:proxy-)?authorization['\"]?\s*[=:]\s*['\"]?(?:[\w-]+\s+)?)"
                                 r"((?:[\w-]+=\"[^\"]*\"|[^\s'\",]+)(?:,\s*[\w-]+=(?:\"[^\"]*\"|[^\s,'\"]+))*)",
    "a cookie": r"(?i)(\b(?:set-)?cookie['\"]?\s*:\s*['\"]?)([^'\"\s;]+(?:;\s*[^'\"\s;]+)*)",
    "a bearer": r"(?i)(\bbearer\s+)([\w.~+/=-]{8,})",
    "a user's password": r"((?<!\S)(?:-[uU] ?|--(?:proxy-)?user[ =])[^\s:'\"]+:)(?!\d+(?!\S)|//)([^\s'\"]+)",
    "a key of the environment": r"(\b[A-Z][A-Z0-9_]{0,60}_KEY=)((?![/~.])(?=\S{0,60}\d)[\w+/=.-]{12,})",
}  # fmt: skip
_RULES = [re.compile(pattern) for pattern in RULES.values()]
_NAMED = re.compile(rf"(?i)((?<![\w.-])(-{{0,2}}{_NAME})['\"]?\]?\s*[=:]\s*(?:(?:bearer|basic|token)\s+)?)({_VALUE})")
_FLAG = re.compile(rf"(?i)((?<![\w.-])(--?{_NAME})\s+)(?!-)({_VALUE})")
_SAID = re.compile(
    r"(?i)(\b(password|passphrase|passwd|secret|token|api[ _-]?key)(?:\s\w{1,20}){0,2}?\s?(?:\bis\b|\bwas\b|:)\s?)"
    rf"(?!{_ADJECTIVE})({_VALUE})"
)
_FLAG_ALONE = re.compile(rf"(?i)--?{_NAME}")
_WHOLE = re.compile(rf"(?is)(-{{0,2}}{_NAME})(\s*[=:]\s*)(.+)")
_SHELL_TEXT = re.compile(r"-\w*c")  # sh -c, bash -lc, python -c
_USERS = ("-u", "-U", "--user", "--proxy-user")
_PREFIXES = "|".join(prefix for prefixes in PREFIXES.values() for prefix in prefixes)
_SHAPE = re.compile("|".join([*SHAPES.values(), rf"\b(?:{_PREFIXES})[\w-]{{14,}}(?:\.[\w-]{{14,}})*"]))
_LONG = re.compile(rf"(?<![\w+=-])(?P<name>--?[\w-]+=|[A-Za-z]\w*[=:])?(?P<word>[\w+-]{{{LONG_WORD},}}=*)(?![\w+=-])")
_CHECKSUM = re.compile(r"(?i)(?:rev|revision|commit|sha\d*|md5|hash|digest|checksum|uuid)[=:]?$")
_HEX = re.compile("[0-9a-f]+|[0-9A-F]+")
_NO_SECRET = re.compile(rf"(?i).*[-_.]{_NAMES_NO_SECRET}$")
_A_NUMBER = re.compile(r"[\d.,]{1,7}")


def _before(meaning: dict[str, str], start: str) -> re.Pattern[str]:
    """Return the pattern of a secret and what precedes it, for words or for a text."""
    pattern = rf"({start}(?:{'|'.join(BEFORE.values())}))(<word>)"
    for mark, expression in meaning.items():
        pattern = pattern.replace(mark, expression)
    return re.compile(pattern)


_BEFORE_WORD = _before(IN_WORDS, r"(?:(?<![^\0])(?:[^\0]*/)?)")
_BEFORE_IN_TEXT = _before(IN_TEXT, r"(?<![\w.-])")


def masked(text: str) -> str:
    """Mask the secrets in a text, such as a setting or a command's output."""
    text = _BEFORE_IN_TEXT.sub(rf"\1{MASK}", text)
    text = _SHAPE.sub(MASK, text)
    for rule in _RULES:
        text = rule.sub(rf"\1{MASK}", text)
    for named in (_NAMED, _FLAG, _SAID):
        text = named.sub(_value_masked, text)
    return _LONG.sub(_long_masked, text)


def masked_words(words: Sequence[str]) -> tuple[str, ...]:
    """Mask the secrets in a command's words: what follows `--token`, and all that `masked` knows."""
    hidden: list[str] = []
    words = _BEFORE_WORD.sub(rf"\1{MASK}", "\0".join(words)).split("\0") if words else ()
    for before, word in zip(["", *words], words, strict=False):
        whole = None if _SHELL_TEXT.fullmatch(before) else _WHOLE.fullmatch(word)
        if before in _USERS:
            hidden.append(masked(f"{before} {word}")[len(before) + 1 :])
        elif _FLAG_ALONE.fullmatch(before) and not word.startswith("-") and _is_secret(before, word):
            hidden.append(MASK)
        elif whole is not None and _is_secret(whole[1], whole[3]):
            hidden.append(f"{whole[1]}{whole[2]}{MASK}")
        elif before.startswith("-") and _CHECKSUM.search(before) and _HEX.fullmatch(word):
            hidden.append(word)
        else:
            hidden.append(masked(word))
    return tuple(hidden)


def masked_line(words: Sequence[str]) -> str:
    """Return a command as it is typed, with its secrets masked."""
    return shlex.join(masked_words(words))


def _is_secret(name: str, value: str) -> bool:
    """Return whether a value is secret: `--token-file` names a file, and a token that is a number is a count."""
    return not _NO_SECRET.match(name) and not ("token" in name.lower() and _A_NUMBER.fullmatch(value))


def _value_masked(match: re.Match[str]) -> str:
    before, name, value = match.groups()
    return f"{before}{MASK}" if _is_secret(name, value) else match.group()


def _long_masked(match: re.Match[str]) -> str:
    name, word = match["name"] or "", match["word"]
    return f"{name}{MASK}" if _is_random(word) and not _CHECKSUM.search(name) else match.group()


def _is_random(word: str) -> bool:
    """Return whether a long word looks like a key: hexadecimal, or capitals, small letters and digits mixed."""
    letters = [letter for letter in word if letter.isalnum()]
    if any(len(part) >= 32 and _HEX.fullmatch(part) for part in re.split(r"[-_]", word)):
        return True
    parts = re.findall("[A-Z]?[a-z]+|[A-Z]+|[0-9]+", word)
    kinds = {"digit" if letter.isdigit() else "capital" if letter.isupper() else "small" for letter in letters}
    return len(kinds) == 3 and len(parts) >= LEAST_PARTS * len(letters)
