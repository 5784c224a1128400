"""The `backend` section."""

import pytest
from pydantic import ValidationError

from app.client.settings import BackendSettings


def test_settings_have_the_documented_keys_and_defaults() -> None:
    settings = BackendSettings()
    assert set(BackendSettings.model_fields) == {
        "base_url", "api_key", "auth_token", "header_prefix", "ca_file", "proxy", "timeout", "max_in_flight",
        "batch_size", "operations"
    }  # fmt: skip
    assert settings.model_dump(exclude={"api_key", "auth_token", "proxy"}) == {
        "base_url": "http://127.0.0.1:8090",
        "header_prefix": "x-service-",
        "ca_file": "",
        "timeout": 30,
        "max_in_flight": 8,
        "batch_size": 200,
        "operations": "auto",
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("base_url", "ftp://backend"), ("base_url", "backend:8090"), ("base_url", "http://"),
        ("base_url", "http://h:99999"), ("base_url", "http://user:secret@h"), ("base_url", "http://h/?a=1"),
        ("base_url", "http://h/ x"), ("base_url", ""),
        ("api_key", "line\nbreak"), ("auth_token", "spaced out"), ("auth_token", "geheimnis-ü"),
        ("header_prefix", ""), ("header_prefix", "x service-"), ("header_prefix", "x:"),
        ("timeout", 0), ("timeout", -1), ("timeout", float("nan")), ("timeout", 10_000),
        ("max_in_flight", 0), ("max_in_flight", 65), ("batch_size", 0), ("batch_size", 1001),
        ("operations", "some"), ("basurl", "http://h"),
    ],
)  # fmt: skip
def test_settings_refuse_invalid_values_without_showing_them(key: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        BackendSettings(**{key: value})
    assert key in str(caught.value)
    for secret in ("line\nbreak", "spaced out", "geheimnis-ü", "secret"):
        assert secret not in str(caught.value)


def test_settings_never_show_credentials() -> None:
    settings = BackendSettings(api_key="key-1234", auth_token="token-1234")
    assert "1234" not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"


def test_settings_tidy_the_address() -> None:
    assert BackendSettings(base_url="https://api.example.com/v/").base_url == "https://api.example.com/v"
