"""Samba as an Active Directory domain controller, on its own loopback address.

To provision a domain takes seconds, so it is done once and kept in pytest's cache; each session works on a copy.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ldap.slapd import wait_for_port

BASE = "DC=acme,DC=example"
ADMIN = "Administrator@acme.example"
READER = "reader@acme.example"
"""A reader with the rights of all accounts, and no others."""
COMPANY = f"OU=Company,{BASE}"
"""A container that all accounts can see. Only members of ``READERS`` can see the entries in it."""
RIGHTFUL = f"CN=usher,OU=Service,{BASE}"
"""A reader in ``READERS``."""
READERS = f"CN=directory-readers,OU=Service,{BASE}"
"""The group with the right to see the entries in ``COMPANY``, and deleted ones."""
SERVICES = 2
"""Accounts of programs."""
PASSWORD = "Sesame-of-Samba-1"
PEOPLE = 2_000
IN_THE_LARGE_GROUP = 1_600
PYTHON = "/usr/bin/python3"
"""The system's Python, for which Samba's modules are built."""

_LOAD = f"""
import sys
import ldb
from samba.auth import system_session
from samba.dcerpc import security
from samba.ndr import ndr_pack, ndr_unpack
from samba.param import LoadParm
from samba.samdb import SamDB

lp = LoadParm()
lp.load(sys.argv[1] + "/etc/smb.conf")
db = SamDB(url=sys.argv[1] + "/private/sam.ldb", session_info=system_session(), lp=lp)
base = "{BASE}"
for name in ("People", "Groups", "Elsewhere", "Service"):
    db.create_ou(f"OU={{name}},{{base}}")
db.newuser("reader", "{PASSWORD}")
db.newuser("usher", "{PASSWORD}", userou="OU=Service")
db.add({{"dn": "{READERS}", "objectClass": "group", "sAMAccountName": "directory-readers", "member": "{RIGHTFUL}"}})
domain = security.dom_sid(db.get_domain_sid())
found = db.search("{READERS}", scope=ldb.SCOPE_BASE, attrs=["objectSid"])
readers = ndr_unpack(security.dom_sid, found[0]["objectSid"][0])
theirs = f"D:PAI(A;CI;GA;;;DA)(A;CI;GA;;;SY)(A;CI;RPLCLORC;;;{{readers}})"
db.create_ou("{COMPANY}")
for name in ("People", "Groups"):
    db.create_ou(f"OU={{name}},{COMPANY}", sd=security.descriptor.from_sddl(theirs, domain))
# What dsacls … /G READERS:LCRP does; it stands before what is audited.
deleted = f"<WKGUID=18E2EA80684F11D2B9AA00C04F79F805,{{base}}>"
[was] = db.search(deleted, scope=ldb.SCOPE_BASE, attrs=["nTSecurityDescriptor"], controls=["show_deleted:1"])
sddl = ndr_unpack(security.descriptor, was["nTSecurityDescriptor"][0]).as_sddl(domain)
sddl = sddl.replace("S:AI", f"(A;;LCRP;;;{{readers}})S:AI")
change = ldb.Message(was.dn)
change["nTSecurityDescriptor"] = ldb.MessageElement(
    ndr_pack(security.descriptor.from_sddl(sddl, domain)), ldb.FLAG_MOD_REPLACE, "nTSecurityDescriptor")
db.modify(change, controls=["show_deleted:1", "sd_flags:1:4"])
# One transaction for all takes time that grows with the square of their number.
for start in range(0, {PEOPLE}, 250):
    db.transaction_start()
    for number in range(start, start + 250):
        db.add({{
            "dn": f"CN=User {{number}},OU=People,{{base}}",
            "objectClass": "user",
            "sAMAccountName": f"user{{number}}",
            "userPrincipalName": f"user{{number}}@acme.example",
            "displayName": f"User {{number}}",
            "mail": f"User{{number}}@Acme.Example",
            "department": f"d{{number % 7}}",
            "userAccountControl": "546" if number % 50 == 7 else "544",
            "proxyAddresses": [f"SMTP:user{{number}}@acme.example", f"smtp:u{{number}}@acme.example"],
        }})
    db.transaction_commit()
def group(name, members):
    db.add({{"dn": f"CN={{name}},OU=Groups,{{base}}", "objectClass": "group", "sAMAccountName": name,
            "description": name.title(), "member": members}})
group("org-acme", [f"CN=User {{number}},OU=People,{{base}}" for number in range({IN_THE_LARGE_GROUP})])
group("inner", [f"CN=User {{number}},OU=People,{{base}}" for number in (1700, 1701, 1702)])
group("edit-acme", [f"CN=User {{number}},OU=People,{{base}}" for number in (1, 2)] + [f"CN=inner,OU=Groups,{{base}}"])
"""


def programs() -> str:
    """Why there is no domain controller here; empty: there is one."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "Samba takes ports below 1024, which root alone may do"
    missing = [name for name in ("samba", "samba-tool") if shutil.which(name) is None]
    if missing or not Path("/usr/share/samba/setup/provision.ldif").is_file():
        return "samba or samba-ad-provision not found (Debian: samba, samba-ad-provision, python3-samba)"
    return ""


def provisioned(cache: Path) -> Path:
    """A domain with people and groups; made if it was not made before."""
    with (cache.parent / "samba.lock").open("w") as lock:
        # Several processes of the suite may want it at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _provisioned(cache)


def _provisioned(cache: Path) -> Path:
    made = cache / hashlib.sha256(_LOAD.encode()).hexdigest()[:12]
    if not made.is_dir():
        for older in cache.iterdir():
            shutil.rmtree(older)
        unfinished = cache / "unfinished"
        _run(
            "samba-tool", "domain", "provision", "--realm=ACME.EXAMPLE", "--domain=ACME", "--server-role=dc",
            "--host-name=dc1", "--dns-backend=NONE", f"--adminpass={PASSWORD}", f"--targetdir={unfinished}",
            "--host-ip=127.0.0.1", "--option=interfaces=lo", "--option=bind interfaces only=yes",
        )  # fmt: skip
        _run(PYTHON, "-c", _LOAD, str(unfinished))
        unfinished.rename(made)
        _moved(made, unfinished)
    return made


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def _moved(folder: Path, was: Path) -> None:
    """Its own configuration names its place."""
    configuration = folder / "etc" / "smb.conf"
    configuration.write_text(configuration.read_text().replace(str(was), str(folder)))


class Samba:
    """A domain controller that works on a copy."""

    def __init__(self, folder: Path, original: Path) -> None:
        self.folder = folder
        shutil.copytree(original, folder, symlinks=True, ignore=_no_sockets)
        _moved(folder, original)
        # All of 127.0.0.0/8 is this machine; the ports of LDAP are not to be chosen.
        number = os.getpid()
        self.host = f"127.{64 + number // 65536 % 64}.{number // 256 % 256}.{number % 254 + 1}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"ldap://{self.host}"

    @property
    def ca_file(self) -> Path:
        """What signed the certificate that it made for itself."""
        return self.folder / "private" / "tls" / "ca.pem"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                "samba", "-s", str(self.folder / "etc" / "smb.conf"), "-i", "-M", "single",
                "--option=server services=ldap", "--option=dcerpc endpoint servers=-",
                "--option=ldap server require strong auth=no", f"--option=interfaces={self.host}/8",
                f"--option=log file={self.folder}/log", f"--option=pid directory={self.folder}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_for_port(self.host, 389, self._process)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(timeout=10)
            self._process = None

    def add_ace(self, dn: str, ace: str) -> None:
        """Adds an ACE to the access control list of an object. Objects below inherit it if it is inheritable."""
        self._tool("dsacl", "set", f"--objectdn={dn}", f"--sddl={ace}")

    def sid(self, account: str) -> str:
        """The security identifier of an account."""
        found = self._tool("user", "show", account, "--attributes=objectSid")
        return found.split("objectSid: ")[1].split()[0]

    def _tool(self, *command: str) -> str:
        credentials = (f"--simple-bind-dn={ADMIN}", f"--password={PASSWORD}")
        configuration = f"--configfile={self.folder}/etc/smb.conf"
        return _run("samba-tool", *command, f"--URL={self.url}", *credentials, configuration)

    def save(self, folder: Path) -> None:
        """Copies the database of the stopped server."""
        shutil.copytree(self.folder / "private", folder, symlinks=True, ignore=_no_sockets)

    def restore(self, folder: Path) -> None:
        """Replaces the database of the stopped server; its ``invocationId`` stays the same."""
        shutil.rmtree(self.folder / "private")
        shutil.copytree(folder, self.folder / "private", symlinks=True)


def _no_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]


@contextmanager
def running(server: Samba) -> Iterator[Samba]:
    server.start()
    try:
        yield server
    finally:
        server.stop()
