"""Plug-ins: a real package, found by its entry point, and plug-ins that cannot be used or misbehave."""

import importlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.commands.schema import METADATA
from app.directory import plugins
from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.directory.source import End, Malformed, Verdict
from app.foundation.clock import utc_now
from app.foundation.configuration.problems import ConfigurationError
from app.foundation.database.engine import open_engine
from app.settings import Settings, load_settings
from app.sync.runs.directory_reads import read_directory
from app.sync.runs.run import RunStatus
from tests.worlds.syncing import SyncedWorld, world

__all__ = ["world"]

EXAMPLE = Path(__file__).with_name("plugin_example")
RULES = [{"from": "people", "user": {"userId": "it.id", "name": "it.name", "email": "it.mail"}}]
SOURCE = {"type": "odd", "name": "odd", "map": RULES}


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> Iterator[None]:
    plugins.plugin_of.cache_clear()
    yield
    plugins.plugin_of.cache_clear()


# A real package.


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where the example is installed."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    shutil.copytree(EXAMPLE, source)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(folder / "packages"), str(source)], check=True, timeout=100)
    return folder / "packages"


@pytest.mark.extended
@pytest.mark.process
def test_a_plug_in_passes_the_contract_suite_without_our_tests(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "tests")]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.returncode == 0, ran.stdout
    assert "14 passed, 2 skipped" in ran.stdout


@pytest.mark.process
def test_a_plug_in_feeds_the_self_hosted_backend(
    world: SyncedWorld, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(installed))
    (tmp_path / "organizations.yaml").write_text("organizations: [{organizationId: acme, organizationName: Acme}]\n")
    export = tmp_path / "export.txt"
    export.write_text("person\tada\tAda\tada@acme.example\nperson\tbob\tBob\t-\nbadge\tada\tacme\nend\t3\n")
    (tmp_path / "usher.yaml").write_text(
        f"""
directory:
  sources:
    - {{type: file, path: {tmp_path}/organizations.yaml}}
    - type: badges
      name: badges
      path: {export}
      map:
        - {{from: people, user: {{userId: it.id, name: it.name, email: it.mail}}}}
        - {{from: badges, membership: {{organizationId: it.team, userId: it.person}}}}
"""
    )
    settings = load_settings(tmp_path / "usher.yaml", environment={}).settings
    world.sources = sources_from_settings(settings.directory)
    assert world.sync().status is RunStatus.DONE
    assert world.held()["members"] == {"ada": ("Ada", "editor")}
    export.write_text("person\tada\tAda\tada@acme.example\nperson\tbob\tBob\t-\nbadge\tbob\tacme\nend\t3\n")
    world.sync(allow_deletes=True)
    assert world.held()["members"] == {"bob": ("Bob", "editor")}


# Plug-ins that cannot be used.

_NUMBERS = itertools.count()
"""No two modules have the same name, because Python keeps them."""

Install = Callable[..., None]

MODULE = """
from app.directory.connector import *
from app.directory.plugins import *
from app.directory.source import *
from pydantic import SecretStr, field_validator

class Odd(PluginSettings):
    sets = ("people",)
    host: str = "h"
    pin: SecretStr = SecretStr("")
    port: int = 1

    @field_validator("host")
    @classmethod
    def _is_known(cls, value):
        if value == "raise":
            raise KeyError(value)
        if value == "refuse":
            raise ValueError("is not known;\\nname another one")
        return value

class Connector:
    def __init__(self, settings):
        self.settings = settings

    def read(self, wanted, request=EVERYTHING):
        value = {"id": "1", "name": "N", "mail": self.settings.pin.get_secret_value()}
        yield DirectoryObject(ObjectId("people", "1"), value, "one")
        yield End(Verdict.COMPLETE)

plugin = SourcePlugin(settings=Odd, connector=Connector)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package with a module and an entry point."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def install(module: str = MODULE, *, name: str = "odd", package: str = "usher-odd", value: str = "") -> None:
        module_name = f"{package.replace('-', '_')}_{next(_NUMBERS)}"
        (folder / f"{module_name}.py").write_text(module)
        information = folder / f"{package.replace('-', '_')}-1.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (information / "entry_points.txt").write_text(f"[usher.sources]\n{name} = {value or f'{module_name}:plugin'}\n")
        importlib.invalidate_caches()

    return install


def problem_of(tmp_path: Path, text: str) -> str:
    """The problem of a source in a settings file."""
    (tmp_path / "usher.yaml").write_text(f"directory: {{sources: [{text}]}}\n")
    with pytest.raises(ConfigurationError) as refused:
        load_settings(tmp_path / "usher.yaml", environment={})
    [problem] = refused.value.problems
    return problem


ODD = "type: odd, name: odd, map: [{from: people, user: {userId: it.id, name: it.name, email: it.mail}}]"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            "{type: Odd}",
            "sources[0]: no source has the type Odd; did you mean odd?",
        ),
        ("{type: pigeon}", "sources[0].type: should be 'file', 'csv', 'ldap', "),
        ("{type: odd, name: a}", "sources[0].map: is missing; add it"),
        (f"{{{ODD}, prot: 5}}", "sources[0].prot: not a setting of this type; did you mean port?"),
        (f"{{{ODD}, port: 1234x}}", "sources[0].port: should be a valid integer, unable to parse string as an integer"),
        (f"{{{ODD}, pin: 1234}}", "sources[0].pin: should be a valid string"),
        (
            f"{{{ODD}, pin_file: /missing}}",
            "sources[0]: pin_file: cannot read /missing: No such file or directory (settings)",
        ),
        (f"{{{ODD}, host: refuse}}", "sources[0].host: is not known;"),
        (f"{{{ODD}, host: raise}}", "sources[0]: the plug-in odd raised KeyError for these settings"),
        (
            "{type: odd, name: a, map: [{from: teams, user: {userId: it.a, name: it.b, email: it.c}}]}",
            "sources[0]: map: rule 1 reads from teams, but the sets are people",
        ),
    ],
)
def test_bad_settings_are_one_line(tmp_path: Path, install: Install, settings: str, problem: str) -> None:
    install()
    found = problem_of(tmp_path, settings)
    assert problem in found
    assert "1234" not in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("module", "value", "problem"),
    [
        (
            "import not_there\n",
            "",
            "of the package usher-odd cannot be imported: ModuleNotFoundError: No module named 'not_there'",
        ),
        ("raise SystemExit(3)\n", "", "cannot be imported: SystemExit: 3"),
        ("def broken(\n", "", "cannot be imported: SyntaxError: "),
        ("", "", "cannot be imported: AttributeError: "),
        (
            "",
            "nowhere:plugin",
            "the plug-in nowhere:plugin of the package usher-odd cannot be imported: ModuleNotFoundError",
        ),
        ("plugin = 5\n", "", "of the package usher-odd is no SourcePlugin"),
        (
            "from app.directory.plugins import *\nplugin = SourcePlugin(settings=dict, connector=None)\n",
            "",
            "of the package usher-odd has no PluginSettings with sets",
        ),
        (
            "from app.directory.plugins import *\nplugin = SourcePlugin(settings=PluginSettings, connector=None)\n",
            "",
            "of the package usher-odd has no PluginSettings with sets",
        ),
    ],
)
def test_a_broken_plug_in_is_one_line(tmp_path: Path, install: Install, module: str, value: str, problem: str) -> None:
    install(module, value=value)
    found = problem_of(tmp_path, f"{{{ODD}}}")
    assert found.startswith("directory.sources[0]: the ")
    assert problem in found
    assert "\n" not in found


def test_two_plug_ins_of_one_type_are_one_line(tmp_path: Path, install: Install) -> None:
    install()
    install(package="usher-even")
    assert problem_of(tmp_path, f"{{{ODD}}}").startswith(
        "directory.sources[0]: the packages usher-even and usher-odd have a plug-in of the type odd; uninstall all"
    )


def test_secrets_are_read_from_files_and_masked(tmp_path: Path, install: Install) -> None:
    install()
    (tmp_path / "pin").write_text("hunter2@acme.example\n")
    (tmp_path / "usher.yaml").write_text(f"directory: {{sources: [{{{ODD}, pin_file: {tmp_path}/pin}}]}}\n")
    loaded = load_settings(tmp_path / "usher.yaml", environment={})
    [source] = sources_from_settings(loaded.settings.directory)
    found, _ = source.read()
    assert "email='hunter2@acme.example'" in str(found)
    assert "hunter2" not in repr(loaded.settings)


def test_plug_ins_are_looked_up_only_for_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(**_: object) -> None:
        raise AssertionError("looked up")

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    Settings.model_validate({"directory": {"sources": [{"type": "file", "path": "a.yaml"}]}})
    with pytest.raises(ValidationError):
        Settings.model_validate({"directory": {"sources": [{"type": "file", "pth": "a.yaml"}]}})
    with pytest.raises(ValidationError, match="looked up"):
        Settings.model_validate({"directory": {"sources": [SOURCE]}})


# Plug-ins that misbehave.

READ = """
from app.directory.connector import *
from app.directory.plugins import *
from app.directory.source import *
import threading

class Odd(PluginSettings):
    sets = ("people", "teams")

class Connector:
    def __init__(self, settings):
        {start}

    def read(self, wanted, request=EVERYTHING):
        yield DirectoryObject(ObjectId("people", "1"), {{"id": "1", "name": "N", "mail": "m"}}, "one")
        {step}
        yield End(Verdict.COMPLETE)

plugin = SourcePlugin(settings=Odd, connector=Connector)
"""


@pytest.mark.parametrize(
    ("start", "step", "reason"),
    [
        ("pass", "raise ValueError('hunter2')", "the plug-in odd raised ValueError; the log has the details"),
        ("raise ValueError('hunter2')", "pass", "the plug-in odd raised ValueError; the log has the details"),
        ("pass", "raise SystemExit", "the plug-in odd raised SystemExit; the log has the details"),
        ("pass", "raise ReadError('the server\\nis away')", "the server"),
        ("pass", "return", "the connector ended without a verdict"),
        ("pass", "yield None", "the plug-in returned NoneType instead of a step"),
        ("pass", "yield {'id': 1}", "the plug-in returned dict instead of a step"),
        ("pass", "yield End('complete')", "the plug-in returned End with an unusable verdict"),
        ("pass", "yield End(Verdict.COMPLETE, None)", "returned End with an unusable reason"),
        ("pass", "yield End(Verdict.COMPLETE, '', 'a\\0')", "returned End with an unusable cursor"),
        ("pass", "yield Malformed('here', 5)", "returned Malformed with an unusable reason"),
        ("pass", "yield Gone(None)", "returned Gone with an unusable object"),
        ("pass", "yield Gone(('people', '1'))", "returned Gone with an unusable object"),
        ("pass", "yield DirectoryObject(ObjectId('people', ''), {}, '')", "DirectoryObject with an unusable id"),
        ("pass", "yield DirectoryObject(ObjectId('people', 'a\\0'), {}, '')", "DirectoryObject with an unusable id"),
        ("pass", "yield DirectoryObject(ObjectId('people', '\\ud800'), {}, '')", "DirectoryObject with an unusable id"),
        ("pass", "yield DirectoryObject(ObjectId('people', 5), {}, '')", "DirectoryObject with an unusable id"),
        ("pass", "yield DirectoryObject(ObjectId('teams', '2'), {}, '')", "DirectoryObject with an unusable id"),
        ("pass", "yield DirectoryObject(ObjectId([], '2'), {}, '')", "the plug-in odd raised TypeError"),
        ("pass", "yield DirectoryObject(ObjectId('people', '2'), [], '')", "DirectoryObject with an unusable value"),
        ("pass", "yield DirectoryObject(ObjectId('people', '2'), {}, '', 5)", "an unusable names"),
        ("pass", "threading.Event().wait()", "kept its reader waiting for 0.5 s; the read is given up"),
    ],
)
def test_a_plug_in_that_misbehaves_fails_its_own_read(
    tmp_path: Path, install: Install, start: str, step: str, reason: str
) -> None:
    install(READ.format(start=start, step=step))
    timeout = 0.5 if "wait" in step else 30
    (tmp_path / "people.yaml").write_text("users: [{userId: ada, name: Ada, email: ada@acme.example}]\n")
    settings = DirectorySettings.model_validate(
        {"sources": [SOURCE | {"timeout": timeout}, {"type": "file", "path": f"{tmp_path}/people.yaml"}]}
    )
    engine = open_engine(f"sqlite:///{tmp_path}/usher.db")
    METADATA.create_all(engine)
    odd, people = read_directory(engine, sources_from_settings(settings), clock=utc_now).sources
    engine.dispose()
    assert odd.verdict is Verdict.FAILED
    assert reason in odd.reason
    assert "hunter2" not in odd.reason
    assert "\n" not in odd.reason
    assert (people.verdict, people.records) == (Verdict.COMPLETE, 1)


def test_a_plug_in_that_was_removed_fails_its_read(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    [source] = sources_from_settings(DirectorySettings.model_validate({"sources": [SOURCE]}))
    plugins.plugin_of.cache_clear()
    monkeypatch.setattr(plugins, "entry_points", lambda **_: EntryPoints())
    assert list(source.read()) == [End(Verdict.FAILED, "the plug-in odd is not installed any more")]


def test_places_and_reasons_of_a_plug_in_are_one_line_that_can_be_stored(tmp_path: Path, install: Install) -> None:
    step = "yield Malformed('here\\0\\nand\\ud800there', 'x' * 5000, ObjectId('people', '2'))"
    install(READ.format(start="pass", step=step))
    [source] = sources_from_settings(DirectorySettings.model_validate({"sources": [SOURCE]}))
    _, malformed, end = source.read()
    assert isinstance(malformed, Malformed)
    assert malformed.place.isprintable()
    assert malformed.place.encode()
    assert len(malformed.reason) == 1000
    assert isinstance(end, End)
    assert (end.verdict, end.except_malformed) == (Verdict.PARTIAL, True)
