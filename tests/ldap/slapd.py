"""OpenLDAP's server with generated content, on its own loopback port."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.ports import free_port

SUFFIX = "dc=acme,dc=example"
ADMIN = f"cn=admin,{SUFFIX}"
READER = f"cn=reader,ou=services,{SUFFIX}"
LIMITED = f"cn=limited,ou=services,{SUFFIX}"
"""A reader for whom the server limits a search to 500 entries, with and without pages."""
PASSWORD = "sesame-of-openldap"

LOG = 300
"""Changes that the session log contains."""

MADE = "20260101000000"
"""The time at which the initial content was created."""

_SCHEMAS = ("core", "cosine", "inetorgperson", "nis")


def programs() -> str:
    """Why there is no server here. Empty: there is one."""
    missing = [name for name in ("slapd", "slapadd") if _program(name) is None]
    return f"{' and '.join(missing)} not found (Debian: slapd)" if missing else ""


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class Slapd:
    """A server in a folder. ``ldif``: its initial content."""

    def __init__(self, folder: Path, ldif: str, *, tls: tuple[Path, Path] | None = None, log: int = LOG) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        data = folder / "data"
        data.mkdir(parents=True)
        modules = next(path for path in ("/usr/lib/ldap", "/usr/lib64/openldap") if Path(path).is_dir())
        lines = [
            *(f"include /etc/ldap/schema/{schema}.schema" for schema in _SCHEMAS),
            f"pidfile {folder}/slapd.pid",
            f"modulepath {modules}",
            "moduleload back_mdb",
            "moduleload syncprov",
            *([] if tls is None else [f"TLSCertificateFile {tls[0]}", f"TLSCertificateKeyFile {tls[1]}"]),
            "database mdb",
            "maxsize 1073741824",
            f"suffix {SUFFIX}",
            f"rootdn {ADMIN}",
            f"rootpw {PASSWORD}",
            f"directory {data}",
            "dbnosync",
            "index objectClass,entryUUID,entryCSN,uid,cn,member eq",
            f'limits dn.exact="{LIMITED}" size=500 size.prtotal=500',
            "limits * size=unlimited size.prtotal=unlimited time=unlimited",
            "overlay syncprov",
            *([f"syncprov-sessionlog {log}"] if log else []),
            "access to attrs=userPassword by anonymous auth by * none",
            'access to * by dn.exact="cn=blind,ou=services,dc=acme,dc=example" none by * read',
        ]
        (folder / "slapd.conf").write_text("\n".join(lines) + "\n")
        (folder / "content.ldif").write_text(ldif)
        made = subprocess.run(
            [str(_program("slapadd")), "-q", "-w", "-f", folder / "slapd.conf", "-l", folder / "content.ldif"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr

    def saved(self) -> str:
        """The content, with all operational attributes."""
        done = subprocess.run(
            [str(_program("slapcat")), "-f", self.folder / "slapd.conf"], capture_output=True, text=True, check=True
        )
        return done.stdout

    def restore(self, ldif: str) -> None:
        """Replaces the content of the stopped server, as ``slapadd -w`` does with a backup."""
        for file in (self.folder / "data").iterdir():
            file.unlink()
        (self.folder / "content.ldif").write_text(ldif)
        command = [str(_program("slapadd")), "-q", "-w", "-f", str(self.folder / "slapd.conf")]
        subprocess.run([*command, "-l", str(self.folder / "content.ldif")], capture_output=True, check=True)

    def hide(self, attribute: str, of: str = "(objectClass=*)") -> None:
        """Hides an attribute of these entries from ``READER``. The server restarts."""
        self.stop()
        file = self.folder / "slapd.conf"
        rule = f'access to filter={of} attrs={attribute} by dn.exact="{READER}" none by * read'
        file.write_text(file.read_text().replace("access to * by", f"{rule}\naccess to * by"))
        self.start()

    def show(self) -> None:
        """Shows all attributes again. The server restarts."""
        self.stop()
        file = self.folder / "slapd.conf"
        lines = [line for line in file.read_text().splitlines() if not line.startswith("access to filter=")]
        file.write_text("\n".join(lines) + "\n")
        self.start()

    @property
    def url(self) -> str:
        return f"ldap://127.0.0.1:{self.port}"

    @property
    def socket_url(self) -> str:
        """The URL of the socket for clients on this machine."""
        return f"ldapi://{quote(str(self.folder / 'socket'), safe='')}"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                str(_program("slapd")),
                "-d",
                "0",
                "-f",
                self.folder / "slapd.conf",
                "-h",
                f"{self.url}/ {self.socket_url}/",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for_port("127.0.0.1", self.port, self._process)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=20)
            self._process = None


def wait_for_port(host: str, port: int, process: subprocess.Popen[bytes], *, patience: float = 40) -> None:
    """Returns when a server listens at the port."""
    until = time.monotonic() + patience
    while True:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        try:
            socket.create_connection((host, port), timeout=2).close()
        except OSError:
            assert time.monotonic() < until, "the server does not listen"
            time.sleep(0.02)
        else:
            return


@contextmanager
def running(server: Slapd) -> Iterator[Slapd]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


def entry(dn: str, **attributes: str | Sequence[str]) -> str:
    """An entry as LDIF."""
    lines = [f"dn: {dn}", f"createTimestamp: {MADE}Z", f"modifyTimestamp: {MADE}Z"]
    lines.append(f"entryCSN: {MADE}.000000Z#000000#000#000000")
    for name, values in attributes.items():
        lines += [f"{name}: {value}" for value in ([values] if isinstance(values, str) else values)]
    return "\n".join(lines) + "\n\n"


def tree() -> str:
    """The containers of the other entries, and the readers."""
    services = ("reader", "limited", "blind")
    return (
        entry(SUFFIX, objectClass=["dcObject", "organization"], dc="acme", o="Acme")
        + "".join(
            entry(f"ou={name},{SUFFIX}", objectClass="organizationalUnit", ou=name)
            for name in ("people", "groups", "services", "elsewhere")
        )
        + "".join(
            entry(
                f"cn={name},ou=services,{SUFFIX}",
                objectClass=["organizationalRole", "simpleSecurityObject"],
                cn=name,
                userPassword=PASSWORD,
            )
            for name in services
        )
    )


def person(number: int, *, spelt: Callable[[str], str] = str) -> str:
    return entry(
        spelt(f"uid=u{number},ou=people,{SUFFIX}"),
        objectClass="inetOrgPerson",
        uid=f"u{number}",
        cn=f"Person {number}",
        sn=f"{number}",
        displayName=f"Person {number}",
        mail=[f"u{number}@acme.example"],
        departmentNumber=f"d{number % 7}",
    )


def group(name: str, members: Sequence[str]) -> str:
    return entry(f"cn={name},ou=groups,{SUFFIX}", objectClass="groupOfNames", cn=name, member=members)


def person_dn(number: int) -> str:
    return f"uid=u{number},ou=people,{SUFFIX}"


def company(people: int, groups: int, *, in_group: int = 140, largest: int | None = None) -> str:
    """People, one group with all of them (or ``largest``), and groups with some. Every fifth contains another group."""
    made = [tree(), *(person(number) for number in range(people))]
    made.append(group("everybody", [person_dn(number) for number in range(largest or people)]))
    for number in range(groups):
        members = [person_dn((number * 31 + step) % people) for step in range(min(in_group, people))]
        if number % 5 == 0 and number:
            members.append(f"CN=Group{number - 1},  ou=groups,{SUFFIX}")
        made.append(group(f"group{number}", members))
    return "".join(made)
