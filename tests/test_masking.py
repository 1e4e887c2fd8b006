"""Secrets in a command are masked, and what only looks a little like one is not."""

from __future__ import annotations

import random
import shlex
import string

import pytest

from mldyno.masking import MASK, masked, masked_line, masked_words

SECRET = "hunter2x"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f"python t.py --token {SECRET} --lr 1", f"python t.py --token {MASK} --lr 1"),
        (f"python t.py --api-key={SECRET}", f"python t.py --api-key={MASK}"),
        (f"python t.py --api_key {SECRET}", f"python t.py --api_key {MASK}"),
        (f"t --client-secret {SECRET} --pass {SECRET}", f"t --client-secret {MASK} --pass {MASK}"),
        (f"mysql --password={SECRET}", f"mysql --password={MASK}"),
        ("mysql --password 123456", f"mysql --password {MASK}"),
        (f"env HF_TOKEN={SECRET} PGPASSWORD={SECRET} run", f"env HF_TOKEN={MASK} PGPASSWORD={MASK} run"),
        (f"curl -H 'Authorization: Bearer {SECRET}' x", f"curl -H 'Authorization: Bearer {MASK}' x"),
        (f"curl -H 'X-Api-Key: {SECRET}' x", f"curl -H 'X-Api-Key: {MASK}' x"),
        (f"curl https://me:{SECRET}@host/x", f"curl https://me:{MASK}@host/x"),
        (f"curl https://me:p@{SECRET}@host/x", f"curl https://me:{MASK}@host/x"),
        (f"curl 'https://h/?a=1&token={SECRET}&b=2'", f"curl 'https://h/?a=1&token={MASK}&b=2'"),
        (f"curl -u me:{SECRET} x", f"curl -u me:{MASK} x"),
        (f"sh -c 'export A_KEY=1 OPENAI_API_KEY={SECRET}; x --password {SECRET}'",
         f"sh -c 'export A_KEY=1 OPENAI_API_KEY={MASK}; x --password {MASK}'"),
        (f"python -c 'login(token=\"{SECRET}\")'", f"python -c 'login(token={MASK})'"),
        ("aws AKIAIOSFODNN7EXAMPLE", f"aws {MASK}"),
        ("git clone https://ghp_abcdefghijklmnop1234@github.com/x", f"git clone https://{MASK}@github.com/x"),
        ("x hf_abcdefghijklmnopqrst", f"x {MASK}"),
        ("x sk-proj-abcdefghijklmnopqrst", f"x {MASK}"),
        ("x xoxb-1234567890-abcdefghij", f"x {MASK}"),
        ("x eyJhbGciOiJIUzI1NiIs.eyJzdWIiOiIxMjM0.abc", f"x {MASK}"),
        ("wandb login 0123456789abcdef0123456789abcdef01234567", f"wandb login {MASK}"),
        ("x --key Zk3Jx9Qp2Lm8Rt5Vw7Yb4Nc6", f"x --key {MASK}"),
        (f"x --commit token={SECRET}", f"x --commit token={MASK}"),
    ],
)  # fmt: skip
def test_a_secret_is_known_by_its_name_its_shape_or_its_randomness(line: str, shown: str) -> None:
    assert masked_line(shlex.split(line)) == shlex.join(shlex.split(shown))
    assert masked_words(shlex.split(shown)) == tuple(shlex.split(shown)), "what is masked stays as it is"
    assert SECRET not in masked(line)


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --tokenizer gpt2 --max-tokens 128 --num_tokens=5 --token 128 --token-file run.txt",
        "python train.py --author me --compass 3 --bypass yes --key=2",
        "curl http://a:b/c http://host:80/path ssh://git@host",
        "docker run -u 1000:1000 python -u train.py",
        "torchrun --nproc_per_node=4 --rdzv-endpoint=127.0.0.1:29500 train.py",
        "train --revision 0123456789abcdef0123456789abcdef01234567 --commit=0123456789abcdef0123456789abcdef01234567",
        "python train.py --model meta-llama/Meta-Llama-3.1-8B-Instruct ./ResNet50_ImageNet_2024Checkpoint_v2",
        "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 expandable_segments:True,max_split_size_mb:128",
        "sh -c 'test -e seen || sleep 2; touch seen; sleep 0.5'",
    ],
)
def test_an_honest_command_stays_as_it_is(line: str) -> None:
    assert masked_line(shlex.split(line)) == line


def test_nearly_every_random_word_is_masked() -> None:
    dice = random.Random(1)
    words = ["".join(dice.choices(string.ascii_letters + string.digits, k=32)) for _ in range(300)]
    assert sum(masked(word) == MASK for word in words) > 0.95 * len(words)


@pytest.mark.parametrize("part", ["token_a", "--token ", "://a:b", "'token", "-u a:", "aB3", "bearer ", "-"])
def test_no_word_takes_long_to_look_at(part: str) -> None:
    masked(part * (100_000 // len(part)))
