from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from string import ascii_letters, ascii_uppercase, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from letta_code.errors import MemoryEditError
from letta_code.memory.rules import check, problems_of
from letta_code.memory.secrets import found, masked, refuse_secret

ALNUM = ascii_letters + digits


def _random(low: int, high: int, alphabet: str = ALNUM) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=low, max_size=high).filter(
        lambda value: len(set(value)) >= 10 and "x" * 4 not in value.lower()
    )


def _jwt(claim: str) -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": claim})
    encoded = [urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV"])


def _after(prefix: str, low: int, high: int, alphabet: str = ALNUM) -> st.SearchStrategy[str]:
    return _random(low, high, alphabet).map(prefix.__add__)


def _pem(kind: str) -> st.SearchStrategy[str]:
    return _random(40, 200).map(lambda key: f"-----BEGIN {kind}-----\n{key}\n-----END {kind}-----")


# Secrets of every kind: all made up.
tokens = st.one_of(
    *(_after(prefix, 16, 16, ascii_uppercase + digits) for prefix in ("AKIA", "ASIA")),
    *(_after(prefix, 36, 36) for prefix in ("ghp_", "gho_", "ghs_", "npm_", "hf_")),
    _after("github_pat_", 60, 82),
    _after("glpat-", 20, 20),
    *(_after(prefix, 24, 90) for prefix in ("sk-", "sk-ant-api03-", "sk-proj-", "sk_live_", "rk_live_")),
    _after("xoxb-123456789012-1234567890123-", 24, 24),
    _after("AIza", 35, 35),
    _after("pypi-AgEIcHlwaS5vcmcC", 70, 120),
    _random(10, 30).map(_jwt),
    *(
        _pem(kind)
        for kind in ("PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK")
    ),
    _after("https://hooks.slack.com/services/T0AB12CD3/B0AB12CD3/", 24, 24),
    _after("AccountKey=", 60, 86),
)
values = (
    _random(14, 40)
    .filter(lambda v: any(c.isdigit() for c in v) and not v[-1].isdigit())
    .map(lambda v: v + "9z7")
)
assigned = st.builds(
    str.format,
    st.sampled_from(
        ['password = "{}"', "DB_PASSWORD={}", "api_key: {}", "client_secret: '{}'", "**Password:** `{}`",
         "postgres://admin:{}@db.local:5432/app", "https://u:{}@h", "Authorization: Bearer {}"]
    ),
    st.shared(values, key="value"),
)  # fmt: skip


@given(tokens, st.sampled_from(["{}", "the key is {} now", "- `{}`\n", "KEY={}", '"{}",']))
def test_e37_no_message_shows_more_of_a_secret_than_its_beginning(token: str, around: str) -> None:
    text = around.format(token)
    assert found(text)
    for shown in (masked(text), *problems_of({}, {"notes/a.md": text.encode()}), *map(repr, found(text))):
        for at in range(4, len(token) - 8):
            assert token[at : at + 8] not in shown or token[at : at + 8] in "-----BEGIN PRIVATE KEY-----"
    assert masked(masked(text)) == masked(text)


@given(assigned, st.shared(values, key="value"))
def test_e37_nothing_is_shown_of_what_follows_a_name_or_stands_in_a_url(text: str, value: str) -> None:
    (secret,) = found(text)
    assert secret.value == value
    assert value[:3] not in masked(text).removeprefix(text.split(value)[0])
    with pytest.raises(MemoryEditError) as refused:
        refuse_secret("the reason", text)
    assert value not in refused.value.message


@given(st.text(max_size=300))
def test_text_without_a_secret_is_not_changed(text: str) -> None:
    if not found(text):
        assert masked(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "AKIAABCDEFGHIJKLMNOP",
        "sk-1234567890abcdef1234567890abcdef",
        "ghp_1234567890abcdefghijklmnopqrstuvwxyz12",
        "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
        "> -----BEGIN EC PRIVATE KEY-----\n> MHcCAQEEIIrYSSNQFaA2Hwf1\n",
        '{"key": "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0B\\n"}',
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\nlQOYBFabcdefghijkl123\n",
        "https://u:p@h",
        "redis://:hunter2@h:6379",
        "mongodb+srv://bob:pa@ss@cluster0.example.net",
        "the wifi password: hunter2zzz.",
        "password = 'Correct!Horse'",
        "The password is hunter2hunter2, she said.",
        "the api key is 8f7e6d5c4b3a2f1e0d9c",
        "API-Key 8f7e6d5c4b3a2f1e0d9c",
        "| password | `8f7e6d5c4b3a2f` |",
        "DB_PASS=Xk92mQp7Lz",
        "密码是 hunter2Hunter2",
        "密码：Xk92mQp7Lz，不要告诉别人",
        "パスワード: Xk92mQp7Lz",
        "пароль: Xk92mQp7Lz",
        "curl -u ada:Xk92mQp7Lz https://h",
        "https://x.blob.core.windows.net/c?sv=2020&sig=abcDEF123ghiJKL456mnoPQR789stuVWX012yzA%3D",
    ],
)
def test_e37_what_is_a_secret(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize(
    "text",
    [
        "no API key here",
        "the key starts with sk-",
        "sk-...",
        "<your-key>",
        "${TOKEN}",
        "ghp_" + "x" * 36,
        "ghp_<token>",
        "xoxb-your-token",
        "AKIAIOSFODNN7EXAMPLE",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "commit 4f9a8b7c6d5e4f3a2b1c4f9a8b7c6d5e4f3a2b1c",
        "550e8400-e29b-41d4-a716-446655440000",
        "https://user@host",
        "https://user:password@example.com",
        "https://user:****@host",
        "https://user:${PASS}@host",
        "http://localhost:8080/@scope",
        "ada@example.org",
        "/etc/passwd",
        "password: see 1Password",
        "password: argon2id-hashed",
        "The token: base64url-encoded",
        "password = os.environ['DB_PASSWORD_1']",
        "API_KEY: MY_API_KEY_V1",
        "password_file: conf/pw1.txt",
        "tokens: 128k-context",
        "tokenizer: cl100k_base",
        "token = max_tokens_per_1_minute",
        "The token is python3-dotenv based.",
        "密码：保存在1Password里，不要写进仓库",
        "密钥为随机生成的RSA4096密钥，存于HSM2",
        "docker run -u 1000:100000 image",
        "sk-learn-some-very-long-package-name",
        "A file that starts with -----BEGIN RSA PRIVATE KEY-----\nis a key.",
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQ\n-----END PUBLIC KEY-----",
        "Authorization: Bearer <token>",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA",
    ],
)
def test_e37_what_is_none(text: str) -> None:
    assert found(text) == ()


def test_a_line_number_and_the_kind_are_told() -> None:
    (secret,) = found("one\ntwo ghp_aB3dE5gH7jK9mN1pQ3sT5vX7zA9cD1fG3hJ5\n")
    assert str(secret) == "GitHub token ghp_… in line 2"


TOKEN = "ghp_aB3dE5gH7jK9mN1pQ3sT5vX7zA9cD1fG3hJ5"


def test_what_memory_holds_already_is_let_through_and_nothing_new() -> None:
    files = {"a.md": f"old {TOKEN}\n".encode()}
    check(files, {"a.md": f"other words {TOKEN}\n".encode()})
    check(files, {"b.md": files["a.md"], "a.md": None})
    assert problems_of(files, {"b.md": files["a.md"]})
    assert problems_of(files, {"a.md": f"{TOKEN} {TOKEN[::-1]} gho_{TOKEN[4:]}".encode()})
    check(files, {"b.md": files["a.md"]}, frozenset({"secret"}))


def test_names_and_files_that_are_no_markdown_are_looked_at_too() -> None:
    (problem,) = problems_of({}, {f"notes/{TOKEN}.md": b"x"})
    assert TOKEN not in problem
    assert "its name" in problem
    assert problems_of({}, {"run.sh": f"export T={TOKEN}".encode()})
    assert problems_of({}, {"run.ps1": f"$T = '{TOKEN}'".encode("utf-16")})
