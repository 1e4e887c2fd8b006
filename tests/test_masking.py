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


R = "q7Zk3Jx9Qp2Lm8Rt5Vw7Yb4Nc6Hd1Fg0"  # 32 invented letters and digits
H = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"  # 32 invented hexadecimal digits
B64 = "wJbkQ1fT/K7mDeNG+bPxRfiCYzzXMPLq2Vn3aB4c"  # 40 invented letters of base64, as a secret key of Amazon has
KINDS = {
    # by the shape that the issuer gives
    "GitHub, classic": f"gh auth --with ghp_{R}",
    "GitHub, OAuth": f"x gho_{R}",
    "GitHub, app": f"x ghs_{R}",
    "GitHub, user": f"x ghu_{R}",
    "GitHub, refresh": f"x ghr_{R}",
    "GitHub, fine-grained": f"x github_pat_11A{R}_{R}",
    "GitLab": f"x glpat-{R[:20]}",
    "GitLab, deploy": f"x gldt-{R[:20]}",
    "GitLab, runner": f"x glrt-{R[:20]}",
    "Hugging Face": f"x hf_{R}",
    "Replicate": f"x r8_{R}",
    "NVIDIA": f"x nvapi-{R}",
    "Groq": f"x gsk_{R}",
    "xAI": f"x xai-{R}",
    "OpenAI": f"x sk-{R}",
    "OpenAI, project": f"x sk-proj-{R}-{R}",
    "Anthropic": f"x sk-ant-api03-{R}",
    "Perplexity": f"x pplx-{R}",
    "LangSmith": f"x lsv2_pt_{H}_{H[:10]}",
    "Pinecone": f"x pcsk_{R}",
    "Weights & Biases": f"wandb login {H}{H[:8]}",
    "Weights & Biases, new": f"wandb login wandb_v1_{R}",
    "Slack, bot": "x xoxb-123456789012-abcdefabcdef",
    "Slack, app": "x xapp-1-A012-345-abcdef",
    "Slack, hook": f"curl https://hooks.slack.com/services/T012AB/B034CD/{R[:24]}",
    "Discord, hook": f"curl https://discord.com/api/webhooks/123456789012345678/{R}",
    "Telegram": f"curl https://api.telegram.org/bot123456789:{R}abc/getMe",
    "Google, key": f"x AIza{R}abc",
    "Google, access": f"x ya29.{R}",
    "Google, client": f"x GOCSPX-{R[:24]}",
    "Stripe": f"x sk_live_{R[:24]}",
    "Stripe, test": f"x sk_test_{R[:24]}",
    "Stripe, restricted": f"x rk_live_{R[:24]}",
    "Stripe, hook": f"x whsec_{R}",
    "Twilio": f"x SK{H}",
    "SendGrid": f"x SG.{R[:22]}.{R}abcdefghijk",
    "DigitalOcean": f"x dop_v1_{H}{H}",
    "DigitalOcean, OAuth": f"x doo_v1_{H}{H}",
    "Databricks": f"x dapi{H}",
    "Databricks, with a number": f"x dapi{H}-2",
    "npm": f"x npm_{R}abcd",
    "PyPI": f"x pypi-AgEIcHlwaS5vcmc{R}",
    "Docker": f"x dckr_pat_{R[:27]}",
    "RubyGems": f"x rubygems_{H}",
    "Vault": f"x hvs.{R}",
    "Doppler": f"x dp.pt.{R}",
    "Grafana": f"x glsa_{R}_0a1b2c3d",
    "New Relic": f"x NRAK-{R[:27]}",
    "Sentry": f"x sntrys_{R}",
    "Shopify": f"x shpat_{H}",
    "Square": f"x sq0atp-{R[:22]}",
    "Notion": f"x ntn_{R}",
    "Linear": f"x lin_api_{R}",
    "Postman": f"x PMAK-{H[:24]}-{H}",
    "Figma": f"x figd_{R}",
    "Atlassian": f"x ATATT3xFfGF0{R}",
    "PlanetScale": f"x pscale_tkn_{R}",
    "age": f"x AGE-SECRET-KEY-1{R}",
    "Amazon, id": f"x AKIA{R[:16].upper()}",
    "Amazon, of a session": f"x ASIA{R[:16].upper()}",
    "Amazon, beside its id": f"x AKIA{R[:16].upper()} {B64}",
    "Amazon, after its id": f"x AKIA{R[:16].upper()}:{B64}",
    "JSON web token": f"x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{R}",
    "PEM": f"x '-----BEGIN RSA PRIVATE KEY-----\nMIIE{R}\n-----END RSA PRIVATE KEY-----'",
    "OpenSSH": f"x '-----BEGIN OPENSSH PRIVATE KEY-----\n{R}'",
    "PGP": f"x '-----BEGIN PGP PRIVATE KEY BLOCK-----\n{SECRET}'",
    "long and random": f"x {R}",
    "hexadecimal": f"x {H}",
    # by its name
    "option": f"x --password {SECRET}",
    "option with =": f"x --password={SECRET}",
    "several words": f"x '--password=a b {SECRET}'",
    "several words apart": f"x --password 'a b {SECRET}'",
    "several words in a variable": f"env 'DB_PASSWORD=a b {SECRET}' run",
    "several words in a header": f"curl -H 'X-Api-Key: a b {SECRET}'",
    "quotes": f"x '--password=it\"s {SECRET}'",
    "line breaks": f"x '--password=a\n{SECRET}'",
    "one dash": f"keytool -storepass {SECRET}",
    "token": f"x --hf-token {SECRET}",
    "api key": f"x --apikey {SECRET}",
    "secret": f"x --client_secret={SECRET}",
    "passphrase": f"gpg --passphrase {SECRET} -d f",
    "one-time": f"x --otp {SECRET}",
    "credentials": f"x --credentials {SECRET}",
    "variable": f"sh -c 'API_KEY={SECRET} python train.py'",
    "variable of env": f"env WANDB_API_KEY={SECRET} python train.py",
    "any key of the environment": f"env KAGGLE_KEY={SECRET}1234 python train.py",
    "AWS by name": f"env AWS_SECRET_ACCESS_KEY={B64} x",
    "AWS, session": f"env AWS_SESSION_TOKEN={SECRET} x",
    "AWS, configured": f"aws configure set aws_secret_access_key {B64}",
    "JSON": f'x \'{{"password": "{SECRET}", "lr": 1}}\'',
    "JSON, several words": f'x \'{{"api_key": "a {SECRET}"}}\'',
    "Python": f"python -c 'login(token=\"{SECRET}\")'",
    "YAML": f"x 'password: {SECRET}'",
    "Azure, account": f"x 'AccountName=a;AccountKey={B64}==;B=c'",
    "Azure, shared": f"x 'Endpoint=sb://h/;SharedAccessKey={SECRET}='",
    "ODBC": f"x 'Server=h;Uid=me;Pwd={SECRET};'",
    "bearer": f"curl -H 'Authorization: Bearer {SECRET}' x",
    "basic": f"curl -H 'Authorization: Basic {SECRET}=' x",
    "Amazon, signed": f"curl -H 'Authorization: AWS4-HMAC-SHA256 Credential=a/b, Signature={SECRET}' x",
    "proxy": f"curl --proxy-header 'Proxy-Authorization: Basic {SECRET}' x",
    "api key in a header": f"curl --header 'X-Api-Key: {SECRET}' x",
    "header, attached": f"curl '-HX-Auth-Token: {SECRET}' x",
    "Azure, header": f"curl -H 'Ocp-Apim-Subscription-Key: {SECRET}' x",
    "cookie": f"curl -H 'Cookie: session={SECRET}' x",
    "cookies": f"curl -H 'Cookie: a=b; session={SECRET}' x",
    "cookie, option": f"curl -b session={SECRET} x",
    "cookie, long option": f"curl --cookie 'session={SECRET}; a=b' x",
    # in an address
    "token in an address": f"git clone https://{SECRET}@host/x",
    "token as a user": f"git clone https://{SECRET}:x-oauth-basic@host/x",
    "token, empty password": f"pip install -i https://{SECRET}:@host/simple x",
    "password in an address": f"curl https://me:{SECRET}@host/x",
    "data base": f"psql postgresql://me:{SECRET}@host:5432/db",
    "Redis in an address": f"x redis://:{SECRET}@host:6379/0",
    "Azure SAS": f"curl 'https://a.blob.core.windows.net/c?sv=2022&sig={SECRET}%3D&se=x'",
    "key in a query": f"curl 'https://h/?key={SECRET}'",
    "token in a query": f"curl 'https://h/?a=1&token={SECRET}&b=2'",
    "access token in a query": f"curl 'https://h/?access_token={SECRET}'",
    "signed address": f"curl 'https://h/f?X-Amz-Date=1&X-Amz-Signature={SECRET}'",
    "Google, signed": f"curl 'https://h/f?X-Goog-Signature={SECRET}'",
    # by the program
    "curl -u": f"curl -u me:{SECRET} x",
    "curl -u, attached": f"curl -ume:{SECRET} x",
    "curl --user": f"curl --user me:{SECRET} x",
    "curl --user=": f"curl --user=me:{SECRET} x",
    "curl --proxy-user": f"curl --proxy-user me:{SECRET} x",
    "curl -U": f"curl -U me:{SECRET} x",
    "sshpass": f"sshpass -p {SECRET} ssh host",
    "sshpass, attached": f"sshpass -p{SECRET} ssh host",
    "sshpass in a shell": f"sh -c 'sshpass -p {SECRET} ssh host'",
    "sshpass by its path": f"/usr/bin/sshpass -p {SECRET} ssh host",
    "mysql": f"mysql -u root -p{SECRET} db",
    "mysqldump": f"sudo mysqldump -h h -p{SECRET} db",
    "redis-cli": f"redis-cli -h h -a {SECRET} ping",
    "zip": f"zip -P {SECRET} a.zip b",
    "7z": f"7z x -p{SECRET} a.7z",
    "docker login": f"docker login registry.io -u me -p {SECRET}",
    "docker login, attached": f"sudo docker login -p{SECRET}",
    "az login": f"az login --service-principal -u me -p {SECRET}",
    "wandb": f"wandb login --relogin {SECRET}",
    "npm config": f"npm config set //r.io/:_authToken {SECRET}",
    "curl -sSu": f"curl -sSu me:{SECRET} https://h",
    "httpie": f"http -a me:{SECRET} h",
    "samba": f"smbclient //h/s -U me%{SECRET}",
    "mqtt": f"mosquitto_pub -h h -P {SECRET}",
    "ssh-keygen": f"ssh-keygen -t rsa -N {SECRET}",
    "openssl enc": f"openssl enc -aes-256-cbc -k {SECRET}",
    "a name in capitals and small letters": f"t --secretKey {SECRET}",
    "a space that a shell is told to keep": f"sh -c 'python t.py --password a\\ {SECRET}'",
    "an item of the environment": f"""python -c "os.environ['HF_TOKEN']='{SECRET}'" """,
    "ldap": f"ldapsearch -D cn=me -w {SECRET}",
    "mongo": f"mongosh -u me -p {SECRET}",
    "openssl": f"openssl rsa -in f -passin pass:{SECRET}",
    "vault": f"vault login {SECRET}",
    "kubernetes": f"kubectl create secret generic name --from-literal=db={SECRET}",
    "ngrok": f"ngrok config add-authtoken {SECRET}",
    "rabbitmq": f"rabbitmqctl add_user me {SECRET}",
    "a short word for a password": f"t --db-pw={SECRET} --pw {SECRET}",
    "a session": f"t --session-key {SECRET}",
    "a web token": f"t --jwt {SECRET}",
    "a licence": f"t --license-key {SECRET}",
    "words of a wallet": f"t --mnemonic '{SECRET} a b' --seed-phrase {SECRET}",
    "a prefix that is not known": f"x sgp_{H}",
    "a certificate's password": f"curl --cert c.pem:{SECRET} https://h",
    "sqlplus": f"sqlplus me/{SECRET}@db",
    "cqlsh": f"cqlsh -u me -p {SECRET}",
    "rclone": f"rclone config create r sftp user me pass {SECRET}",
    "dvc": f"dvc remote modify store secret_access_key {SECRET}",
    "digest": f"""curl -H 'Authorization: Digest username="me", response="{SECRET}"' h""",
    "a passcode": f"t --passcode {SECRET}",
    # as a program says it
    "said: is": f"echo 'the password is {SECRET}'",
    "said: colon": f"echo 'token: {SECRET}'",
    "said: was": f"echo 'password was {SECRET}'",
    "said: provided": f"echo 'Incorrect API key provided: {SECRET}'",
    "said: for": f"echo 'password for me: {SECRET}'",
    "netrc": f"echo 'machine h login me password {SECRET}'",
}
SECRETS = (SECRET, R, H, R[:16], R[:20], R[:22], R[:24], R[:16].upper(), H[:24], B64, "abcdefabcdef", "345-abcdef")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_secret_is_masked(kind: str) -> None:
    words = shlex.split(KINDS[kind])
    hidden = masked_words(words)
    assert len(hidden) == len(words)
    assert MASK in " ".join(hidden)
    assert not [secret for secret in SECRETS if secret in " ".join(hidden)]
    assert masked_words(hidden) == hidden, "what is masked stays as it is"
    assert masked(masked(KINDS[kind])) == masked(KINDS[kind])


@pytest.mark.parametrize(
    "line",
    [f"unknown -p {SECRET}", f"unknown -p{SECRET}", "door --pin 4711", f"login {SECRET}", f"x --key {SECRET}",
     f"htpasswd -b file me {SECRET}", f"docker run -p {SECRET}", f"x --word {SECRET}"],
)  # fmt: skip
def test_what_has_neither_name_nor_shape_stays_in_clear(line: str) -> None:
    """The limit that the reference names: an option of a program that is not known, a PIN, a bare word."""
    assert masked_line(shlex.split(line)) == line


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --tokenizer bert --max-tokens 512 --max_new_tokens=64 --key-dim 64 --sort-key loss",
        "python train.py --lr 3e-4 --weight-decay 0.01 --betas 0.9 0.95 --seed 1234567890 --run-id 2024-11-18T10.00.00",
        "python train.py --id 123e4567-e89b-12d3-a456-426614174000 --from runs/123e4567-e89b-12d3-a456-426614174000",
        "git checkout 1f3c5d7",
        "python train.py --commit 0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c",
        "python train.py --model meta-llama/Llama-3.1-70B-Instruct --model mistralai/Mixtral-8x7B-v0.1",
        "python train.py --data /mnt/data/imagenet-1k/train_00042.tar --out ./checkpoints/step_0010000/m.safetensors",
        "python train.py Base64LookingCheckpointFileName.ckpt models/TinyStories33M/pytorch_model-00001-of-00002.bin",
        "python train.py --password-file secrets.txt --token-path ~/.cache/token --api-key-env OPENAI_API_KEY",
        "docker run -p 8080:80 -v /a:/b --gpus all image:latest",
        "docker login --password-stdin registry.io",
        "az group list -p",
        "curl -sSfu",
        "http -a digest h",
        "npm config set cache /tmp",
        "wandb login --cloud",
        "ssh -p 2222 me@host",
        "psql -p 5432 -U postgres db",
        "mysql -P 3306 -h db --protocol=tcp",
        "nc -u host 53",
        "pip install -U git+https://github.com/x/y.git",
        "git clone https://git@github.com/x/y",
        "git clone git@github.com:x/y",
        "curl 'https://host/path?page=2&sort=key&q=token'",
        "curl -b cookies.txt https://host",
        "sh -c 'echo done; python train.py'",
        "torchrun --rdzv-id 42 --rdzv-backend c10d train.py",
        "python -m pytest tests/test_tokens.py::test_a_token -k 'not secret'",
        "accelerate launch --mixed_precision bf16 t.py",
        "npm_config_cache=/tmp npm ci",
        "env SORT_KEY=loss CACHE_KEY=v2 python t.py",
        "env OMP_NUM_THREADS=4 python t.py",
        "python train.py --auth-mode none --pass-count 3 --authors me --bypass 1",
        "python train.py --user-agent Mozilla:5",
        "tar -cf a.tar b",
        "7z x a.7z",
        "zip -r a.zip b",
        "openssl speed -evp aes-128-gcm",
        "redis-cli -h host ping",
        "curl --cert client.pem https://host",
        "sqlplus /nolog",
        "rclone copy a/b remote:c",
        "dvc remote modify store endpointurl https://host",
    ],
)
def test_a_harmless_command_stays_as_it_is(line: str) -> None:
    assert masked_line(shlex.split(line)) == shlex.join(shlex.split(line))


@pytest.mark.parametrize(
    "text",
    ["the token is invalid", "password is required", "CUDA error: out of memory", "No module named 'tokenizers'"],
)
def test_what_a_program_says_of_a_secret_stays(text: str) -> None:
    assert masked(text) == text


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


@pytest.mark.parametrize(
    "part",
    [
        "token_a",
        "--token ",
        "://a:b",
        "'token",
        "-u a:",
        "aB3",
        "bearer ",
        "-",
        "mysql ",
        "sshpass -",
        "a_KEY=",
        "cookie: ",
        "password ",
    ],
)
def test_no_word_takes_long_to_look_at(part: str) -> None:
    masked(part * (100_000 // len(part)))
