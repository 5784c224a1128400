"""The access model follows an LDAP directory, and faulty reads do not change it."""

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from sqlalchemy import Engine

from app.cli import usher
from app.commands.schema import METADATA
from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.directory.source import Verdict
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine
from app.sync.runs.directory_reads import RefreshReport, export, read_directory
from tests.ldap import slapd
from tests.ldap.slapd import SUFFIX, Slapd, person_dn
from tests.worlds.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = [pytest.mark.external, pytest.mark.process, pytest.mark.xdist_group("ldap")]

RULES = [
    {
        "from": "users",
        "user": {
            "userId": "it.uid",
            "name": "it.displayName",
            "email": "it.mail",
            "disabled": 'it.?title == optional.of("left")',
        },
    },
    {"from": "groups", "organization": {"organizationId": "it.cn", "organizationName": "it.cn"}},
    {"from": "groups", "each": "members", "membership": {"organizationId": "it.cn", "userId": "member.userId"}},
]


@dataclass
class Company:
    """A directory, a proxy before it, and the access model that follows it."""

    server: Slapd
    between: TcpProxy
    engine: Engine
    folder: Path

    def settings(self, **settings: Any) -> dict[str, Any]:
        given = {
            "type": "ldap",
            "name": "people",
            "url": f"ldap://127.0.0.1:{self.between.port}",
            "base": SUFFIX,
            "preset": "openldap",
            "bind_dn": slapd.READER,
            "bind_password": slapd.PASSWORD,
            "connect_timeout": 3,
            "answer_timeout": 3,
            "page_size": 25,
            "full_every": 3600,
            "map": RULES,
        }
        return given | settings

    def refresh(self, **settings: Any) -> RefreshReport:
        directory = DirectorySettings.model_validate({"sources": [self.settings(**settings)]})
        return read_directory(self.engine, sources_from_settings(directory, spool=self.folder / "spool"), clock=utc_now)

    def model(self) -> list[str]:
        return sorted(json.dumps(record, sort_keys=True) for record in export(self.engine))

    def change(self, dn: str, name: str, value: str) -> None:
        import ldap

        connection = ldap.initialize(self.server.url)
        connection.simple_bind_s(slapd.ADMIN, slapd.PASSWORD)
        connection.modify_s(dn, [(ldap.MOD_REPLACE, name, [value.encode()])])
        connection.unbind_s()

    def delete(self, dn: str) -> None:
        import ldap

        connection = ldap.initialize(self.server.url)
        connection.simple_bind_s(slapd.ADMIN, slapd.PASSWORD)
        connection.delete_s(dn)
        connection.unbind_s()


@pytest.fixture
def company(own_slapd: Slapd, tmp_path: Path) -> Iterator[Company]:
    engine = open_engine(f"sqlite:///{tmp_path}/usher.db")
    METADATA.create_all(engine)
    with tcp_proxy("127.0.0.1", own_slapd.port) as between:
        yield Company(own_slapd, between, engine, tmp_path)
    engine.dispose()


def test_changes_reach_the_access_model(company: Company) -> None:
    first = company.refresh()
    assert first.sources[0].verdict is Verdict.COMPLETE
    before = company.model()
    assert sum('"userId": "u7"' in record for record in before) > 1
    company.change(person_dn(7), "title", "left")
    company.delete(person_dn(8))
    second = company.refresh()
    assert (second.sources[0].verdict, second.sources[0].answered) == (Verdict.COMPLETE, "changes")
    changed = company.model()
    assert '"disabled": true' in next(record for record in changed if '"kind": "user"' in record and '"u7"' in record)
    assert not any('"u8"' in record for record in changed)
    # A full read has the same result.
    third = company.refresh(full_every=0)
    assert (third.sources[0].answered, third.changed) == ("", False)


@pytest.mark.parametrize("full_every", [0, 3600], ids=["read as a whole", "asked for changes"])
def test_a_faulty_read_changes_no_access(company: Company, full_every: int) -> None:
    # So that few entries have changed last, now as well as below.
    company.change(person_dn(5), "displayName", "Somebody")
    company.refresh()
    before = company.model()
    company.between.reset()
    company.refresh(full_every=full_every)
    whole = company.between.passed
    for number in (1, 2, 3, 30):
        company.delete(person_dn(number))
    company.change(person_dn(4), "displayName", "Somebody Else")
    for share in range(10):
        company.between.reset()
        company.between.cut_after = whole * share // 10
        report = company.refresh(full_every=full_every)
        assert report.sources[0].verdict is Verdict.FAILED, f"cut after {share / 10:.0%}"
        assert company.model() == before
    company.between.reset()
    company.between.stall_after = whole // 2
    report = company.refresh(full_every=full_every, answer_timeout=0.3, connect_timeout=0.3)
    assert report.sources[0].verdict is Verdict.FAILED
    assert company.model() == before
    company.between.reset()
    assert company.refresh(full_every=full_every).sources[0].verdict is Verdict.COMPLETE
    after = company.model()
    assert not any(f'"u{number}"' in record for record in after for number in (1, 2, 3, 30))
    assert any("Somebody Else" in record for record in after)


def test_a_slow_server_is_read_within_the_timeout(company: Company) -> None:
    company.refresh()
    company.delete(person_dn(9))
    before = company.model()
    company.between.delay = lambda: time.sleep(0.02)
    report = company.refresh(full_every=0, timeout=0.1)
    assert (report.sources[0].verdict, company.model()) == (Verdict.FAILED, before)
    assert company.refresh(full_every=0).sources[0].verdict is Verdict.COMPLETE
    assert not any('"u9"' in record for record in company.model())


def test_a_killed_server_changes_no_access(company: Company) -> None:
    company.refresh()
    before = company.model()
    company.server.stop(signal.SIGKILL)
    report = company.refresh()
    assert report.sources[0].verdict is Verdict.FAILED
    assert company.model() == before
    company.server.start()
    assert company.refresh().sources[0].verdict is Verdict.COMPLETE
    assert company.model() == before


def test_a_reader_without_rights_changes_no_access(company: Company) -> None:
    company.refresh()
    before = company.model()
    report = company.refresh(bind_dn=f"cn=blind,ou=services,{SUFFIX}")
    assert report.sources[0].verdict is Verdict.FAILED
    assert company.model() == before
    # Success, and nobody: the guard does not believe it.
    report = company.refresh(sets={"users": {"filter": "(uid=nobody)"}, "groups": {"filter": "(cn=nothing)"}})
    assert report.sources[0].verdict is Verdict.FAILED
    assert company.model() == before


@pytest.mark.parametrize("command", [["directory", "check"], ["doctor"], ["directory", "preview", "people"]])
def test_every_command_reports_the_error_without_the_password(
    company: Company, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "database_url": f"sqlite:///{company.folder}/usher.db",
        "directory": {"sources": [company.settings(bind_password="mistyped-secret")]},
    }
    file = company.folder / "usher.yaml"
    file.write_text(yaml.safe_dump(settings))
    monkeypatch.chdir(company.folder)
    done = CliRunner().invoke(usher, [*command, "--config", str(file)], prog_name="usher", env={"COLUMNS": "400"})
    assert done.exit_code == 1
    output = " ".join(done.output.split())
    assert "the name or the password is wrong; correct bind_dn or bind_password" in output
    assert "mistyped-secret" not in output
    assert "Traceback" not in output
