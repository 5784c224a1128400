"""Usher allows no access that the directory denies, after any changes of the directory and any failures of reads.

The property ``comparisons`` of a test has the number of comparisons, and of those in which a user had access.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine
from tests.ldap import samba, slapd
from tests.ldap.people import ActiveDirectory, Directory, OpenLdap, source_settings
from tests.ldap.samba import Samba
from tests.ldap.slapd import Slapd
from tests.ldap.trial import Leavers, Trial
from tests.tables import make_tables
from tests.worlds.application import Application, office_settings
from tests.worlds.installation import Reader
from tests.worlds.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = [pytest.mark.external, pytest.mark.process, pytest.mark.slow, pytest.mark.xdist_group("ldap")]

Record = Callable[[str, object], None]


def run_trial(
    seed: int, steps: int, directory: Directory, between: TcpProxy, folder: Path, *, record: Record, **login: str
) -> None:
    """Runs a trial with a table of leavers in SQLite."""
    engine = open_engine(f"sqlite:///{folder}/usher.db")
    make_tables(engine, METADATA)
    office = create_engine(f"sqlite:///{folder}/office.db")
    table = Application(office)
    table.begin()
    table.put("doc", "d1", title="d1", access="organizationPrivate", owner=None)
    sources = [
        source_settings(directory, f"ldap://127.0.0.1:{between.port}", **login),
        office_settings(f"sqlite:///{folder}/office.db"),
    ]
    reader = Reader(engine, sources, folder / "spool")
    trial = Trial(seed, directory, reader, between, Leavers(table), backup=folder / "backup")
    try:
        trial.run(steps)
    finally:
        record("comparisons", f"{trial.compared}, {trial.with_access} of them with access")
        engine.dispose()
        office.dispose()


@pytest.mark.parametrize("seed", range(2))
def test_no_user_has_access_that_openldap_denies(
    own_slapd: Slapd, seed: int, tmp_path: Path, record_property: Record
) -> None:
    """Full reads, reads of changes and of parts, pushes, failures, changes in the middle, restored backups, and an
    attribute that is hidden for a while."""
    with tcp_proxy("127.0.0.1", own_slapd.port) as between:
        login = {"preset": "openldap", "bind_dn": slapd.READER, "bind_password": slapd.PASSWORD}
        run_trial(seed, 70, OpenLdap(own_slapd), between, tmp_path, record=record_property, **login)


def test_no_user_has_access_that_active_directory_denies(
    domain: Samba, tmp_path: Path, record_property: Record
) -> None:
    """The same in a corner of a domain, in which nothing is hidden."""
    root = f"OU=Trial,OU=Elsewhere,{samba.BASE}"
    with tcp_proxy(domain.host, 389) as between:
        directory = ActiveDirectory(domain, root)
        try:
            login = {"preset": "active_directory", "bind_dn": samba.RIGHTFUL, "bind_password": samba.PASSWORD}
            run_trial(0, 40, directory, between, tmp_path, record=record_property, **login)
        finally:
            directory.clear()
