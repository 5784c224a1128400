"""The settings as a whole, and the file that documents them."""

from pathlib import Path

import pytest
import yaml

from app.directory.settings import FileSourceSettings
from app.foundation.configuration.problems import ConfigurationError
from app.foundation.configuration.schema import known_keys
from app.foundation.configuration.showing import setting_rows
from app.settings import Settings, load_settings

HTTP_SOURCE = '[{"type": "http", "name": "idp", "base_url": "https://h", "preset": "okta", "auth": AUTH, "map": []}]'
SQL_SOURCE = '[{"type": "sql", "name": "app", "url": "URL", "queries": {"grants": "SELECT 1"}}]'
DOCUMENTED = Path(__file__).parent.parent / "config" / "usher.yaml"


def test_documented_file_shows_every_setting_with_its_default() -> None:
    documented = load_settings(DOCUMENTED, environment={})
    without = load_settings(Path("/dev/null"), environment={})
    shown = [(key, value) for key, value, _ in setting_rows(documented.settings, documented.origins)]
    defaults = [(key, value) for key, value, _ in setting_rows(without.settings, without.origins)]
    assert shown == defaults
    text = DOCUMENTED.read_text("utf-8")
    for key in known_keys(Settings):
        assert f"{key.rpartition('.')[2]}:" in text, key


def test_documented_file_is_plain_yaml() -> None:
    assert set(yaml.safe_load(DOCUMENTED.read_text("utf-8"))) == set(Settings.model_fields)


_MAP = "map: [{from: %s, user: {userId: it.id, name: it.userName, email: it.email}}]"


@pytest.mark.parametrize(
    ("yaml_text", "message"),
    [
        ("database_url: mysql://x/y\n", "database_url: mysql is not supported; use sqlite:///FILE"),
        ("database_url: nonsense\n", "database_url: not a database URL; write sqlite:///var/usher.db"),
        ("sync: {schedule: soon}\n", "sync.schedule: "),
        ("sync: {timezone: Mars}\n", "sync.timezone: "),
        ("sync: {limits: {delete_percent: 120}}\n", "sync.limits.delete_percent: "),
        ("provider: {path: check}\n", "provider.path: "),
        ("provider: {path: /a b}\n", "provider.path: must be a plain path"),
        ("provider: {path: /a//b}\n", "provider.path: must be a plain path"),
        ("provider: {path: /a/../resync}\n", "provider.path: must be a plain path"),
        ("provider: {path: /resync}\n", "provider.path: is taken"),
        ("provider: {path: /resync/x/approve}\n", "provider.path: is taken"),
        ("provider: {path: /directory/x/changes}\n", "provider.path: is taken"),
        ("provider: {path: /healthz}\n", "provider.path: is taken"),
        ("provider: {path: /permissions/explain}\n", "provider.path: is taken by another endpoint"),
        ("provider: {decision_ttl: -1}\n", "provider.decision_ttl: "),
        ("provider: {decision_log: {sample: 0}}\n", "provider.decision_log.sample: "),
        ("directory: {guard: {percent: 101}}\n", "directory.guard.percent: "),
        ("directory: {sources: [{type: file, path: a, guard: {count: -1}}]}\n", "directory.sources[0]"),
        ("directory: {sources: [{type: file, path: a, poll: soon}]}\n", "directory.sources[0]"),
        ("console: {oidc: {issuer: 'https://login.example'}}\n", "console.oidc: issuer is set, but client_id is empty"),
        (
            "console: {oidc: {issuer: 'https://l.example', client_id: x, roles: {ops: viewer}}}\n",
            "console: oidc.issuer is set, but public_url is empty",
        ),
        ("console: {oidc: {roles: {ops: owner}}}\n", "console.oidc.roles"),
        ("backend: {base_url: ftp://x}\n", "backend.base_url: "),
        ("backend: {batch_size: 0}\n", "backend.batch_size: "),
        (
            "directory: {sources: [{type: pigeon}]}\n",
            "directory.sources[0].type: should be 'file', 'csv', 'ldap', 'sql', 'http', 'push'",
        ),
        (
            "directory: {sources: [{type: ldap, url: 'ldaps://dc1', base: dc=x, preset: posix}]}\n",
            "directory.sources[0].map: is missing",
        ),
        (
            "directory: {sources: [{type: sql, name: app, url: 'mysql://h/x', queries: {grant: SELECT 1}}]}\n",
            "directory.sources[0]: queries.grant: is not a list of records; did you mean grants?",
        ),
        (
            "directory: {sources: [{type: sql, name: app, url: hunter2@h, queries: {grants: SELECT 1}}]}\n",
            "directory.sources[0].url: not a database URL; write postgresql://USER:PASSWORD@HOST/NAME or the like (/",
        ),
        ("directory: {sources: [{type: file}]}\n", "directory.sources[0].path: is missing"),
        (
            "directory: {sources: [{type: http, name: a, base_url: 'https://h', preset: okta}]}\n",
            "directory.sources[0].map: is missing",
        ),
        (
            (
                "directory: {sources: [{type: http, name: a, base_url: 'h', preset: okta,"
                " map: [{from: users, fill: {userId: it.id}}]}]}\n"
            ),
            "directory.sources[0].base_url: must be an http or https URL",
        ),
        (
            "directory: {sources: [{type: csv, path: a, kind: users}]}\n",
            "directory.sources[0].kind: should be one",
        ),
        (
            "directory: {sources: [{type: csv, path: a, delimiter: ab}]}\n",
            "directory.sources[0].delimiter: should be one",
        ),
        ("directory: {sources: [{type: push, changes: {tokens: [abc]}}]}\n", "directory.sources[0].name: is missing"),
        ("directory: {sources: [{type: push, name: app}]}\n", "directory.sources[0].changes: is missing"),
        (
            "directory: {sources: [{type: push, name: app, changes: {kinds: [user]}}]}\n",
            "directory.sources[0].changes.tokens: is missing",
        ),
        (
            "directory: {sources: [{type: file, path: a, changes: {kinds: [grants]}}]}\n",
            "directory.sources[0].changes.kinds[0]: should be one of organization,",
        ),
        (
            "directory: {sources: [{type: file, path: a, changes: {organizations: ['']}}]}\n",
            "directory.sources[0].changes.organizations[0]: must be the id of an organization",
        ),
        (
            (
                "directory: {sources: [{type: push, name: a, changes: {tokens: [t]}},"
                " {type: push, name: b, changes: {tokens: [t]}}]}\n"
            ),
            "directory: the sources 'a' and 'b' accept the same token",
        ),
        *(
            (f"directory: {{sources: [{{type: scim, {source}}}]}}\n", reason)
            for source, reason in (
                (f"name: a, {_MAP % 'users'}", "directory.sources[0].tokens: is missing"),
                (f"name: a/b, tokens: [t], {_MAP % 'users'}", "directory.sources[0].name: must hold no slash"),
                (
                    f"name: a, tokens: [t], {_MAP % 'rows'}",
                    "directory.sources[0]: map: rule 1 reads from rows",
                ),
                (
                    f"name: a, tokens: [t], {_MAP % 'users, each: members'}",
                    "directory.sources[0]: map: rule 1: only groups",
                ),
                (
                    f"name: a, tokens: [t], changes: {{}}, {_MAP % 'users'}",
                    "directory.sources[0]: changes: a directory",
                ),
            )
        ),
        ("sync: {push_delay: -1}\n", "sync.push_delay: "),
        ("directory: {sources: [{type: file, path: x, pth: y}]}\n", "directory.sources[0].pth: not a setting"),
        ("directory: {sources: {type: file}}\n", "directory.sources: should be a list"),
        ("directory: {sources: []}\n", "directory.sources: should not be empty"),
        ("server: {port: 70000}\n", "server.port: "),
        ("log: {level: loud}\n", "log.level: "),
    ],
)
def test_unusable_values_are_named_with_their_key(tmp_path: Path, yaml_text: str, message: str) -> None:
    file = tmp_path / "usher.yaml"
    file.write_text(yaml_text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file, environment={})
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(message)
    assert "\n" not in caught.value.problems[0]


def test_sources_can_come_from_the_environment() -> None:
    variables = {"USHER_DIRECTORY__SOURCES": '[{"type": "file", "path": "x.jsonl", "name": "people"}]'}
    [source] = load_settings(Path("/dev/null"), environment=variables).settings.directory.sources
    assert isinstance(source, FileSourceSettings)
    assert (source.type, str(source.path), source.name) == ("file", "x.jsonl", "people")


def test_settings_never_show_their_secrets() -> None:
    variables = {
        "USHER_DATABASE_URL": "postgresql+psycopg://me:TOPSECRET@h/n",
        "USHER_BACKEND__API_KEY": "TOPSECRET",
        "USHER_BACKEND__AUTH_TOKEN": "TOPSECRET",
        "USHER_ADMIN__TOKENS": "TOPSECRET,TOPSECRET2",
        "USHER_PROVIDER__AUTH_TOKENS": '["TOPSECRET"]',
        "USHER_SELF_HOSTED_BACKEND__SECRET_KEY": "TOPSECRET",
        "USHER_SELF_HOSTED_BACKEND__DATABASE_URL": "postgresql+psycopg://me:TOPSECRET@h/another",
    }
    result = load_settings(Path("/dev/null"), environment=variables)
    assert len(result.settings.admin.tokens) == 2
    assert "TOPSECRET" not in str(list(setting_rows(result.settings, result.origins)))
    assert "TOPSECRET" not in repr(result.settings.backend) + repr(result.settings.admin) + repr(
        result.settings.provider
    )


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DATABASE_URL", "postgresql+psycopg://me:hunter2/hunter2@h/n"),
        ("DATABASE_URL", "postgresql+psycopg://me:hunter2 word@h/n"),
        ("DATABASE_URL", "postgresql+psycopg://h/n?user=me&password=hunter2"),
        ("SELF_HOSTED_BACKEND__DATABASE_URL", "postgresql+psycopg://me:a?hunter2@h/n"),
        ("BACKEND__AUTH_TOKEN", "x://hunter2"),
        ("NOTIFICATIONS__EMAIL__PASSWORD", "x://hunter2"),
        ("SELF_HOSTED_BACKEND__SECRET_KEY", "x://hunter2-of-some-length"),
        ("CONSOLE__OIDC__CLIENT_SECRET", "hunter2"),
        ("CONSOLE__OIDC__CLIENT_SECRET", "hunter2 hunter2"),
        ("CONSOLE__OIDC__PROXY", "http://me:hunter2@proxy:3128"),
        (
            "DIRECTORY__SOURCES",
            '[{"type": "push", "name": "app", "changes": {"tokens": ["hunter2"]}}]',
        ),
        # The token that two sources share is not printed either.
        (
            "DIRECTORY__SOURCES",
            (
                '[{"type": "push", "name": "a", "changes": {"tokens": ["hunter2"]}},'
                ' {"type": "push", "name": "b", "changes": {"tokens": ["hunter2"]}}]'
            ),
        ),
        ("DIRECTORY__SOURCES", '[{"type": "push", "name": "app", "changes": {"tokens": [" hunter2"]}}]'),
        ("DIRECTORY__SOURCES", SQL_SOURCE.replace("URL", "postgresql://me:hunter2@h/n")),
        ("DIRECTORY__SOURCES", HTTP_SOURCE.replace("AUTH", '{"token": "hunter2"}')),
        ("DIRECTORY__SOURCES", HTTP_SOURCE.replace("AUTH", '{"token": "hunter2\\n"}')),
        ("DIRECTORY__SOURCES", HTTP_SOURCE.replace("AUTH", '{"username": "u", "password": "hunter2"}')),
        ("DIRECTORY__SOURCES", HTTP_SOURCE.replace("AUTH", '{"client_id": "u", "client_secret": "hunter2"}')),
        ("DIRECTORY__SOURCES", HTTP_SOURCE.replace("AUTH", '{"service_account_key": "hunter2"}')),
        # They are refused, and the error does not contain the rest.
        ("DIRECTORY__SOURCES", SQL_SOURCE.replace("URL", "postgresql://me:p@hunter2@h/n")),
        ("DIRECTORY__SOURCES", SQL_SOURCE.replace("URL", "hunter2@h")),
        ("DATABASE_URL", "postgresql+psycopg://me:p@hunter2@h/n"),
        ("DATABASE_URL", "postgresql+psycopg://me:hunter2@h:port/n"),
        ("BACKEND__BASE_URL", "https://h/x?api_key=hunter2"),
        ("NOTIFICATIONS__WEBHOOK__URL", "https://me:hunter2/hunter2@h/x"),
        ("NOTIFICATIONS__WEBHOOK__URL", "ftp://hooks.example/T0/hunter2"),
        ("NOTIFICATIONS__WEBHOOK__URL", "https://hooks.example/T0/hunter2"),
    ],
)
def test_no_spelling_of_a_secret_is_shown(variable: str, value: str) -> None:
    try:
        result = load_settings(Path("/dev/null"), environment={f"USHER_{variable}": value})
        text = str(list(setting_rows(result.settings, result.origins)))
    except ConfigurationError as error:
        text = str(error)
    assert text
    assert "hunter2" not in text


def test_url_in_place_of_the_webhook_section_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "usher.yaml"
    file.write_text("notifications: {webhook: 'https://hooks.example/T0/hunter2'}")
    with pytest.raises(ConfigurationError, match=r"notifications\.webhook: should hold settings") as caught:
        load_settings(file, environment={})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("ours", "the_backends"),
    [
        ("postgresql+psycopg://me@h/n", "postgresql://me@h/n"),
        ("sqlite:///var/one.db", "sqlite:///var/one.db"),
        ("sqlite:///var/one.db", f"sqlite:///{Path.cwd()}/var/../var/one.db"),
    ],
)
def test_databases_must_differ(ours: str, the_backends: str) -> None:
    variables = {"USHER_DATABASE_URL": ours, "USHER_SELF_HOSTED_BACKEND__DATABASE_URL": the_backends}
    with pytest.raises(ConfigurationError, match="a database of its own"):
        load_settings(Path("/dev/null"), environment=variables)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server: {port: 2026-13-45}", "looks like a date but is not one"),
        ("server: &x\n  host: *x", "usher.yaml"),
        pytest.param("server: " + "[" * 3000 + "]" * 3000, "nested without end", marks=pytest.mark.extended),
        pytest.param("server: " + "[" * 3000, "not YAML", marks=pytest.mark.extended),
        ("sync: {schedule: '0 0 31 2 *'}", "sync.schedule: '0 0 31 2 *' names a day that no month has"),
        (
            "self_hosted_backend: {database_url: 'postgresql://u@h:x/y'}",
            "self_hosted_backend.database_url: not a database",
        ),
        ("self_hosted_backend: {public_url: nonsense}", "self_hosted_backend.public_url: must be an http"),
    ],
)
def test_contradictions_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "usher.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file, environment={})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
