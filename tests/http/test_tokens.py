"""Bearer tokens."""

import pytest
from flask import Flask, request
from pydantic import SecretStr

from app.contract.errors import Unauthenticated
from app.http.tokens import TokenSet, bearer_token, require_bearer


def test_token_set_accepts_each_of_its_tokens_and_no_other() -> None:
    tokens = TokenSet([SecretStr("one"), SecretStr("zwei-ü"), SecretStr("")])
    assert [tokens.accepts(token) for token in ("one", "zwei-ü", "", "One", "one ", "two")] == [True, True] + [
        False
    ] * 4


def test_an_empty_token_set_accepts_nothing() -> None:
    assert not TokenSet([]).accepts("")
    assert not TokenSet([SecretStr("")]).accepts("")


def test_token_set_never_shows_a_token() -> None:
    tokens = TokenSet([SecretStr("geheim")])
    assert repr(tokens) == "<TokenSet of 1>"
    assert "geheim" not in str([getattr(tokens, name) for name in TokenSet.__slots__])


@pytest.mark.parametrize(
    ("header", "token"),
    [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", None), ("Bearer", None), ("Bearer ", None),
     ("abc", None), ("", None)],
)  # fmt: skip
def test_bearer_token_reads_the_header(header: str, token: str | None) -> None:
    with Flask("t").test_request_context(headers={"Authorization": header}):
        assert bearer_token(request.environ) == token


def test_bearer_token_is_utf8() -> None:
    environ = {"HTTP_AUTHORIZATION": "Bearer zwei-ü".encode().decode("latin-1")}
    with Flask("t").test_request_context(environ_overrides=environ):
        assert bearer_token(request.environ) == "zwei-ü"
        require_bearer(request, TokenSet([SecretStr("zwei-ü")]))


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
def test_require_bearer_refuses(headers: dict[str, str]) -> None:
    with Flask("t").test_request_context(headers=headers), pytest.raises(Unauthenticated) as caught:
        require_bearer(request, TokenSet([SecretStr("right")]))
    assert "wrong" not in str(caught.value)
