"""Layers, origins and problems of settings, tested on a small model."""

from pathlib import Path
from typing import Any, Literal

import pytest
import yaml as yaml_module
from pydantic import BaseModel, ConfigDict, SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from app.foundation.configuration.loading import Configuration, load
from app.foundation.configuration.problems import ConfigurationError
from app.foundation.configuration.showing import setting_rows
from app.foundation.database.url import DatabaseUrl

PROBLEMS = yaml_module.safe_load(Path(__file__).with_name("problems.yaml").read_text("utf-8"))


class Lamp(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["lamp"]
    path: str
    lamp_token: SecretStr = SecretStr("")


class Bell(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["bell"]
    loudness: int


class House(BaseModel):
    model_config = ConfigDict(extra="forbid")
    api_key: SecretStr = SecretStr("")
    auth_tokens: list[SecretStr] = []
    origins: list[str] = []
    timeout: float = 30
    role: Literal["viewer", "editor"] = "viewer"
    open: bool = False
    things: list[Lamp | Bell] = []


class Sample(BaseSettings):
    model_config = SettingsConfigDict(extra="forbid")
    database_url: DatabaseUrl = "sqlite:///var/usher.db"
    house: House = House()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def _read(
        yaml: str | None = None, command_line: dict[str, Any] | None = None, **variables: str
    ) -> Configuration[Sample]:
        file = None
        if yaml is not None:
            file = Path("usher.yaml")
            file.write_text(yaml)
        return load(Sample, environment=variables, file=file, command_line=command_line)

    return _read


def problem(read: Any, *arguments: Any, **variables: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(*arguments, **variables)
    assert len(caught.value.problems) == 1
    assert "\n" not in caught.value.problems[0]
    return caught.value.problems[0]


def test_load_returns_the_defaults(read: Any) -> None:
    assert read() == Configuration(Sample(), {})


def test_load_merges_the_layers_in_order(read: Any) -> None:
    yaml = "house:\n  timeout: 1\n  role: editor\n  open: true\n"
    result = read(yaml, {"house.timeout": 3, "house.open": None}, USHER_HOUSE__TIMEOUT="2", USHER_HOUSE__ROLE="viewer")
    assert (result.settings.house.timeout, result.settings.house.role, result.settings.house.open) == (
        3,
        "viewer",
        True,
    )
    assert result.origins["house.timeout"] == "command line"
    assert result.origins["house.role"] == "environment USHER_HOUSE__ROLE"
    assert result.origins["house.open"] == "usher.yaml:4"


def test_load_reads_the_default_file(read: Any) -> None:
    Path("config").mkdir()
    Path("config/usher.yaml").write_text("house:\n  timeout: 7\n")
    assert read().settings.house.timeout == 7
    Path("other.yaml").write_text("house:\n  timeout: 8\n")
    assert read(USHER_CONFIG="other.yaml").settings.house.timeout == 8


def test_load_takes_an_empty_section_and_an_empty_file(read: Any) -> None:
    assert read("house:\n").settings == Sample()
    assert read("# nothing\n").settings == Sample()


@pytest.mark.parametrize("given", ['["a", "b"]', "a, b", "a,b,"])
def test_load_takes_lists_from_the_environment(read: Any, given: str) -> None:
    assert read(USHER_HOUSE__ORIGINS=given).settings.house.origins == ["a", "b"]


def test_load_reads_secrets_from_files(read: Any) -> None:
    Path("key").write_text("s3cret\n")
    Path("tokens").write_text("one\n\ntwo\n")
    result = read(
        "house:\n  api_key_file: key\n  things:\n  - {type: lamp, path: x, lamp_token_file: key}\n",
        USHER_HOUSE__AUTH_TOKENS_FILE="tokens",
    )
    house = result.settings.house
    assert house.api_key.get_secret_value() == "s3cret"
    assert [token.get_secret_value() for token in house.auth_tokens] == ["one", "two"]
    assert house.things[0].lamp_token.get_secret_value() == "s3cret"
    assert result.origins["house.api_key"] == "file key, named in usher.yaml:2"
    assert result.origins["house.auth_tokens"] == "file tokens, named in environment USHER_HOUSE__AUTH_TOKENS_FILE"


def test_load_takes_the_database_url_from_a_file_named_in_the_environment(read: Any) -> None:
    Path("url").write_text("sqlite:///x.db")
    assert read(USHER_DATABASE_URL_FILE="url").settings.database_url == "sqlite:///x.db"


@pytest.mark.parametrize("case", PROBLEMS["files"])
def test_load_explains_errors_in_the_file(read: Any, case: dict[str, str]) -> None:
    assert problem(read, case["yaml"]) == case["message"]


@pytest.mark.parametrize("case", PROBLEMS["variables"])
def test_load_explains_errors_in_the_environment(read: Any, case: dict[str, str]) -> None:
    assert problem(read, **{case["variable"]: case["value"]}) == case["message"]


def test_load_leaves_the_variables_of_a_cluster_alone(read: Any) -> None:
    assert (
        read(USHER_PORT="tcp://10.0.0.1:80", USHER_PORT_80_TCP_ADDR="10.0.0.1", USHER_SERVICE_HOST="10.0.0.1").origins
        == {}
    )


def test_load_reports_every_problem(read: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read("house:\n  timout: 1\n  role: boss\n")
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    "yaml",
    [
        "house:\n  api_key: [TOPSECRET]\n",
        "house:\n  auth_tokens: TOPSECRET\n",
        "house:\n  auth_tokens: [{x: TOPSECRET}]\n",
        "database_url: [TOPSECRET]\n",
        "house:\n  things:\n  - {type: lamp, path: x, lamp_token: [TOPSECRET]}\n",
    ],
)
def test_problems_never_show_a_secret(read: Any, yaml: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(yaml)
    assert "TOPSECRET" not in str(caught.value)


def test_setting_rows_mask_secrets_and_name_origins(read: Any) -> None:
    yaml = (
        "database_url: postgresql+psycopg://me:TOPSECRET@host/name\n"
        "house:\n  api_key: TOPSECRET\n  auth_tokens: [TOPSECRET]\n  things:\n  - {type: bell, loudness: 3}\n"
    )
    result = read(yaml, USHER_HOUSE__OPEN="true")
    rows = list(setting_rows(result.settings, result.origins))
    assert "TOPSECRET" not in str(rows)
    assert ("database_url", "postgresql+psycopg://me:********@host/name", "usher.yaml:1") in rows
    assert ("house.api_key", "********", "usher.yaml:3") in rows
    assert ("house.auth_tokens", "[********]", "usher.yaml:4") in rows
    assert ("house.open", "true", "environment USHER_HOUSE__OPEN") in rows
    assert ("house.timeout", "30", "default") in rows
    assert ("house.things[0].loudness", "3", "usher.yaml:6") in rows
