"""Secrets are taken out of what is written down, wherever the stream that brings them is cut."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from runplan.core.redaction import Redactor
from runplan.core.secrets import REDACTED, holds_secret, redacted, redacted_bytes, secret_values

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
    "private key": KEY,
    "private key in JSON": json.dumps(KEY)[1:-1],
    "private key without an end": KEY[:200],
}
VALUES = ("hunter2-hunter2", "a pass phrase", 'with "quotes"\nand lines')


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS.keys())
def test_tokens_of_known_forms_are_taken_out(token: str) -> None:
    told = redacted(f"before: {token} after")

    assert REDACTED in told
    assert told.startswith("before: ")
    assert told.endswith("after")
    assert not any(piece in told for piece in (token[-12:], token[8:20]))
    assert holds_secret(token)


@pytest.mark.parametrize(
    "text",
    [
        "task-" + "a" * 40,
        "risk-assessment-of-the-whole-house-and-garden-2026",
        "AKIAIOSFODNN7EXAMPLEX",
        "-----BEGIN PUBLIC KEY-----\nMIIEpAIBAAKCAQEA7bq9\n-----END PUBLIC KEY-----",
        "//registry.example/:_authToken=${NPM_TOKEN}",
        "sk-short",
        "d41d8cd98f00b204e9800998ecf8427e41d8cd98",
        "",
        "\udcff and ä",
    ],
)
def test_what_only_resembles_a_token_is_left_alone(text: str) -> None:
    assert redacted(text) == text
    assert redacted_bytes(text.encode(errors="surrogateescape")) == text.encode(errors="surrogateescape")


def test_what_follows_a_private_key_is_left_alone() -> None:
    assert redacted(f"a\n{KEY}\nThen the agent went on.") == "a\n[redacted]\nThen the agent went on."


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

    assert {"k" * 8, 'say "ä"!', r"say \"\u00e4\"!", r"say \"ä\"!", "s3cr3t-s3cr3t", "one;two;three"} == set(values)


def test_values_are_taken_out_whole_when_one_is_part_of_another() -> None:
    assert redacted("x=12345678 y=1234567890", ("12345678", "1234567890")) == "x=[redacted] y=[redacted]"


STREAM = "\n".join(
    f'{{"n": {n}, "said": "the word is {word}, so there"}}' for n, word in enumerate([*TOKENS.values(), *VALUES])
).encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=40))
def test_wherever_a_stream_is_cut_the_outcome_is_the_same(cuts: list[int]) -> None:
    redactor = Redactor(VALUES)
    places = [0, *sorted(cuts), len(STREAM)]

    told = b"".join(redactor.feed(STREAM[a:b]) for a, b in pairwise(places)) + redactor.finish()

    assert told == redacted_bytes(STREAM, VALUES)


def test_a_stream_that_comes_byte_by_byte_has_no_secret_in_it() -> None:
    redactor = Redactor(VALUES)

    told = b"".join(redactor.feed(STREAM[at : at + 1]) for at in range(len(STREAM))) + redactor.finish()

    assert told == redacted_bytes(STREAM, VALUES)
    assert not any(value.encode() in told for value in VALUES)


def test_whole_lines_do_not_wait() -> None:
    redactor = Redactor(VALUES)

    assert redactor.feed(b"one\ntwo sk-1\n") == b"one\ntwo sk-1\n"
    assert redactor.feed(b"half a l") == b"half a "
    assert redactor.feed(b"ine\n") == b"line\n"
    assert redactor.finish() == b""


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
def test_streams_that_look_like_secrets_all_along_take_time_in_proportion_and_do_not_pile_up(hard: bytes) -> None:
    redactor = Redactor(VALUES)
    chunk = hard * (262_144 // len(hard))
    began = time.process_time()

    for _ in range(8):
        redactor.feed(chunk)

    assert len(redactor.take_rest()) <= 40_000
    assert time.process_time() - began < 4
