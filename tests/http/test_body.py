"""Reading bodies: types, sizes, encodings and incomplete streams."""

import io

import pytest
from flask import Flask
from flask.testing import FlaskClient

JSON = "application/json"
MAX_BYTES = 200
"""As the app of these tests is set."""


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


def post(client: FlaskClient, body: bytes, content_type: str = JSON, **headers: str) -> tuple[int, str]:
    answer = client.post("/echo", data=body, content_type=content_type, headers=headers)
    return answer.status_code, answer.get_data(as_text=True)


@pytest.mark.parametrize(
    "content_type",
    [JSON, "application/json; charset=utf-8", "Application/JSON; Charset=UTF-8", 'application/json;charset="utf-8"'],
)
def test_read_json_takes_json_in_utf8(client: FlaskClient, content_type: str) -> None:
    assert post(client, b'{"a":1}', content_type) == (200, '{"a":1}')


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "application/jsonp",
     "application/json; v=2", "text/json", ";;;", "application/json, text/plain"],
)  # fmt: skip
def test_read_json_refuses_other_types(client: FlaskClient, content_type: str) -> None:
    code, text = post(client, b'{"a":1}', content_type)
    assert code == 415
    assert "Content-Type" in text


def test_read_json_refuses_compressed_bodies(client: FlaskClient) -> None:
    code, text = post(client, b"\x1f\x8b", **{"Content-Encoding": "gzip"})
    assert (code, "Content-Encoding" in text) == (415, True)


@pytest.mark.parametrize("body", [b"", b"  \n"])
def test_read_json_reports_an_empty_body(client: FlaskClient, body: bytes) -> None:
    code, text = post(client, body)
    assert (code, "empty" in text) == (400, True)


def test_read_json_takes_a_body_of_exactly_the_limit(client: FlaskClient) -> None:
    body = b'"' + b"x" * (MAX_BYTES - 2) + b'"'
    assert post(client, body)[0] == 200
    assert post(client, body + b" ")[0] == 413


class CountingStream(io.RawIOBase):
    """An endless stream of bytes that counts the bytes read."""

    def __init__(self) -> None:
        self.given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override] # narrower than the abstract type
        size = min(7, len(buffer))
        buffer[:size] = b"1" * size
        self.given += size
        return size


def post_stream(client: FlaskClient, stream: io.IOBase, **environ: object) -> int:
    overrides = {"wsgi.input": stream, "CONTENT_TYPE": JSON, **environ}
    return client.open("/echo", method="POST", environ_overrides=overrides).status_code


def test_read_json_stops_at_the_limit_of_an_endless_chunked_body(client: FlaskClient) -> None:
    stream = CountingStream()
    environ = {"wsgi.input_terminated": True, "CONTENT_LENGTH": "", "HTTP_TRANSFER_ENCODING": "chunked"}
    assert post_stream(client, stream, **environ) == 413
    assert stream.given == MAX_BYTES + 1


def test_read_json_reads_nothing_of_a_body_that_is_declared_too_large(client: FlaskClient) -> None:
    stream = CountingStream()
    assert post_stream(client, stream, CONTENT_LENGTH=str(MAX_BYTES + 1)) == 413
    assert stream.given == 0


@pytest.mark.parametrize("terminated", [True, False])
def test_read_json_collects_a_body_that_comes_in_pieces(client: FlaskClient, terminated: bool) -> None:
    environ = {"wsgi.input_terminated": terminated, "CONTENT_LENGTH": "16"}
    assert post_stream(client, CountingStream(), **environ) == 200


@pytest.mark.parametrize("terminated", [True, False])
def test_read_json_refuses_a_body_that_ends_too_early(client: FlaskClient, terminated: bool) -> None:
    environ = {"wsgi.input_terminated": terminated, "CONTENT_LENGTH": "9"}
    assert post_stream(client, io.BytesIO(b"[1]"), **environ) == 400
