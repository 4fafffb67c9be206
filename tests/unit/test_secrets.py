"""Secrets are taken out of what is written down, wherever the stream that brings them is cut."""

import json
import time
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, strategies as st

from runplan.domain.checks.secrets import REDACTED, Redactor, redact_text, redacted_bytes, secret_values, secrets_in

KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA7bq9+/x0\n" * 25 + "short==\n-----END RSA PRIVATE KEY-----"
TOKENS = {
    "anthropic": "sk-ant-" + "a1B2-" * 10,
    "openai": "sk-proj-" + "abcDEF_1" * 6,
    "plain": "sk-" + "0123456789abcdef" * 2,
    "github": "ghp_" + "A1b2" * 9,
    "github, fine": "github_pat_" + "11AAA_bbb" * 6,
    "slack": "xoxb-123456789012-abcdefGHIJKL",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "npm": "//registry.example/:_authToken=npm_0123456789",
    "npm, with blanks": ":_authToken = npm_0123456789",
    "npm, alone": "npm_" + "a1B2c3" * 6,
    "google": "AIzaSy" + "A1b2-C3_d" * 3 + "123456",
    "gitlab": "glpat-abcdefghij1234567890",
    "hugging face": "hf_" + "abcDEF12" * 4 + "xy",
    "stripe": "sk_live_" + "a1B2c3D4" * 3,
    "stripe, restricted": "rk_live_" + "a1B2c3D4" * 3,
    "pypi": "pypi-AgEIcHlwaS5vcmc" + "abc-DEF_1" * 6,
    "private key": KEY,
    "private key in JSON": json.dumps(KEY)[1:-1],
    "private key without an end": KEY[:200],
}
SIGNED = ".".join(("eyJhbGciOiJIUzI1NiJ9", "eyJzdWIiOiIxMjM0NTY3ODkwIn0" + "a1_" * 400, "sIgn-atu_re" * 4))
VALUES = ("hunter2-hunter2", "a pass phrase", 'with "quotes"\nand lines')


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS.keys())
def test_tokens_of_known_forms_are_taken_out(token: str) -> None:
    cleaned = redact_text(f"before: {token} after")
    assert REDACTED in cleaned
    assert cleaned.startswith("before: ")
    assert cleaned.endswith("after")
    assert not any(piece in cleaned for piece in (token[-12:], token[8:20]))
    assert secrets_in(token)


RESEMBLING = (
    *("task-" + "a" * 40, "risk-assessment-of-the-whole-house-and-garden-2026", "AKIAIOSFODNN7EXAMPLEX", "sk-short"),
    "-----BEGIN PUBLIC KEY-----\nMIIEpAIBAAKCAQEA7bq9\n-----END PUBLIC KEY-----",
    *("//registry.example/:_authToken=${NPM_TOKEN}", "AIza" + "a" * 20, "AIza" + "a" * 60, "xAIza" + "a" * 35),
    *("glpat-short", "npm_config_registry_and_other_names_of_npm", "npm_lifecycle_event", "my_npm_" + "a" * 36),
    *("hf_hub_download_and_many_more_functions_of_it", "half_" + "a" * 40, "task_live_" + "a" * 40, "sk_live_stream"),
    *("sk_test_" + "a" * 30, "pypi-" + "a" * 60, "pypi-attestations-and-other-packages-of-a-long-name"),
    *("eyJhbGciOiJIUzI1NiJ9", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0", "\udcff and ä", ""),
    *("keyJournal.eyJournal.of-a-class-with-a-long-name", "d41d8cd98f00b204e9800998ecf8427e41d8cd98"),
)


@pytest.mark.parametrize("text", RESEMBLING)
def test_text_that_resembles_a_token_stays(text: str) -> None:
    assert redact_text(text) == text
    assert redacted_bytes(text.encode(errors="surrogateescape")) == text.encode(errors="surrogateescape")


def test_a_signed_token_is_redacted_and_does_not_block_landing() -> None:
    """Tests and documents hold such tokens as examples."""
    assert redact_text(f"Authorization: Bearer {SIGNED}, so") == "Authorization: Bearer [redacted], so"
    assert not secrets_in(SIGNED)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_long_token_is_redacted_across_any_chunk_border(size: int) -> None:
    redactor = Redactor()
    line = f"a {SIGNED} b\n".encode()
    cleaned = b"".join(redactor.feed(line[at : at + size]) for at in range(0, len(line), size)) + redactor.finish()
    assert cleaned == b"a [redacted] b\n"


def test_values_are_found_in_url_and_json_encoding() -> None:
    value = 'p@ss"w/ör d+1'
    values = secret_values({"MY_SECRET": value})
    for way in (quote(value), quote(value, safe=""), quote_plus(value), quote(value, safe="").lower()):
        assert redact_text(f"https://u:{way}@h/", values) == "https://u:[redacted]@h/"
    assert redact_text(json.dumps(value).replace("/", r"\/"), values) == '"[redacted]"'
    assert secret_values({"MY_SECRET": "plain-Value_1"}) == ("plain-Value_1",)


def test_every_kind_of_token_has_a_name() -> None:
    for name in ("google", "gitlab", "hugging face", "stripe", "pypi", "github", "slack", "aws", "npm", "private key"):
        (kind,) = secrets_in(f"x = {TOKENS[name]}").values()
        assert name in kind.lower()


def test_text_after_a_private_key_stays() -> None:
    assert redact_text(f"a\n{KEY}\nThen the agent went on.") == "a\n[redacted]\nThen the agent went on."


def test_the_values_of_variables_that_sound_secret_are_known_also_as_json_writes_them() -> None:
    environment = {
        "OPENAI_API_KEY": "k" * 8,
        "my_token": 'say "ä"!',
        "CLIENT_SECRET": "s3cr3t-s3cr3t",
        "DB_PASSWORD": "short",
        "DEPLOY_KEYS": "one;two;three",
        "KEYBOARD": "us-international",
        "HOME": "/home/uma",
    }
    values = secret_values(environment)
    written = {"k" * 8, 'say "ä"!', r"say \"\u00e4\"!", r"say \"ä\"!", "s3cr3t-s3cr3t", "one;two;three"}
    assert written <= set(values)
    assert not any("%" not in value and "+" not in value for value in set(values) - written)


def test_values_are_taken_out_whole_when_one_is_part_of_another() -> None:
    assert redact_text("x=12345678 y=1234567890", ("12345678", "1234567890")) == "x=[redacted] y=[redacted]"


STREAM = "\n".join(
    f'{{"n": {n}, "said": "the word is {word}, so there"}}'
    for n, word in enumerate([*VALUES, *TOKENS.values()])  # the last one has no end
).encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=40))
@example([STREAM.index(b"and lines") + 3])  # a value that goes on in the next line
def test_chunk_borders_do_not_change_the_redacted_stream(cuts: list[int]) -> None:
    redactor = Redactor(VALUES)
    places = [0, *sorted(cuts), len(STREAM)]
    cleaned = b"".join(redactor.feed(STREAM[a:b]) for a, b in pairwise(places)) + redactor.finish()
    assert cleaned == redacted_bytes(STREAM, VALUES)


def test_whole_lines_are_passed_on_at_once() -> None:
    redactor = Redactor(VALUES)
    assert redactor.feed(b"one\ntwo sk-1\n") == b"one\ntwo sk-1\n"
    assert redactor.feed(b"half a l") == b""
    assert redactor.feed(b"ine\n") == b"half a line\n"
    assert redactor.finish() == b""


def test_the_first_lines_of_a_value_wait_for_the_others() -> None:
    redactor = Redactor(("first line\nsecond\nthe third line",))
    assert redactor.feed(b"first line\nsecond\n") == b""
    assert redactor.feed(b"the third line\n") + redactor.finish() == b"[redacted]\n"


@pytest.mark.parametrize(
    "hard",
    [
        b"x" * 4096,
        b"sk-" * 1024,
        b"-----BEGIN ",
        b"-----BEGIN PRIVATE KEY-----",
        b"-----BEGIN PRIVATE KEY-----" + b"A" * 4096,
        b"-----BEGIN PRIVATE KEY-----" + b"\n" * 4096,
        b"\\" * 4096,
        b":_authToken=",
        b"hunter2-hunter" * 100,
        b"hunter2-hunter2" * 100,
    ],
    ids=range(10),
)
def test_streams_that_resemble_secrets_take_linear_time_and_bounded_memory(hard: bytes) -> None:
    redactor = Redactor(VALUES)
    chunk = hard * (262_144 // len(hard))
    began = time.process_time()
    for _ in range(3):
        redactor.feed(chunk)
    assert len(redactor.take_rest()) <= 40_000
    assert time.process_time() - began < 1.5


@pytest.mark.parametrize(
    ("address", "text", "cleaned"),
    [
        ("http://u:proxypass10@h:80", "it is proxypass10.", "it is [redacted]."),
        ("http://u:proxypass10@h:80", "see http://u:proxypass10@h:80/x", "see http://u:[redacted]@h:80/x"),
        ("postgres://me:p%40ss%20w%C3%B6rd@db/x?y=z", "p@ss wörd, p%40ss%20w%C3%B6rd", "[redacted], [redacted]"),
        ("http://u:p@ssw0rd@h", "p@ssw0rd", "[redacted]"),
        ("http://u:test@h", "a test of http://u:test@h", "a test of http:[redacted]h"),
        ("a http://u:password-1@h and http://v:password-2@h", "password-1 password-2", "[redacted] [redacted]"),
        ("http://user@host:8080/path:with@sign", "user host 8080 path with", "user host 8080 path with"),
        ("no://address", "no address", "no address"),
    ],
)
def test_the_password_in_a_url_is_a_secret_in_any_variable(address: str, text: str, cleaned: str) -> None:
    assert redact_text(text, secret_values({"HTTPS_PROXY": address})) == cleaned
