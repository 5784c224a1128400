"""CSV files as sources: the contract suite, records, objects for rules, and files that cannot be trusted."""

import csv
import gzip
import io
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.access.records import AccessRole, Grant, Membership, User
from app.directory.configured import source_from_settings
from app.directory.settings import CsvSourceSettings, DirectorySettings
from app.directory.source import End, Found, Malformed, ObjectId, Source, Step, Verdict
from app.directory.testing.contract import SourceContract
from app.directory.testing.world import Content, SourceWorld, UnsupportedError, read
from tests.worlds.faulty_reads import FaultyReads

HEADER = ["kind", "userId", "name", "email", "organizationId"]


def csv_source(path: Path, **settings: object) -> Source:
    return source_from_settings(CsvSourceSettings.model_validate({"type": "csv", "path": path, **settings}))


class CsvWorld(SourceWorld):
    """An archive of a CSV file with a column ``kind``."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "people.csv.gz"

    def source(self) -> Source:
        return csv_source(self._path, name="people")

    def set_content(self, content: Content) -> None:
        self._rows = [
            *(["user", one, person.name, person.email, ""] for one, person in content.people.items()),
            *(["membership", one, "", "", team] for team, some in content.teams.items() for one in sorted(some)),
        ]
        self._write()

    @contextmanager
    def cut(self, share: float) -> Iterator[None]:
        whole = self._path.read_bytes()
        self._path.write_bytes(whole[: int(len(whole) * share)])
        yield
        self._path.write_bytes(whole)

    def add_unusable(self, person_id: str, text: str) -> None:
        if not text.isascii():
            raise UnsupportedError("no bytes of UTF-8 are half a surrogate pair")
        self._rows.insert(3, ["user", person_id, text, "", ""])
        self._write()

    def failures(self) -> Mapping[str, AbstractContextManager[Source]]:
        @contextmanager
        def of(name: str, content: bytes | None) -> Iterator[Source]:
            if content is not None:
                self._path.with_name(name).write_bytes(content)
            yield csv_source(self._path.with_name(name))

        return {
            "missing": of("missing.csv", None),
            "empty": of("empty.csv", b""),
            "no archive": of("plain.csv.gz", b"plain"),
            "no kind": of("kindless.csv", b"a,b\n"),
        }

    def _write(self) -> None:
        text = io.StringIO()
        csv.writer(text).writerows([HEADER, *self._rows])
        unfinished = self._path.with_suffix(".part")
        unfinished.write_bytes(gzip.compress(text.getvalue().encode(), 1))
        unfinished.replace(self._path)


class TestCsvFiles(FaultyReads, SourceContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> CsvWorld:
        return CsvWorld(tmp_path)


@pytest.fixture
def steps_of(tmp_path: Path):
    """Reads a file with this content, whose places then begin with ``file``."""

    def steps(content: str | bytes, **settings: object) -> list[Step]:
        path = tmp_path / "d.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        found = read(csv_source(path, **settings))
        replaced = [
            step._replace(place=step.place.replace(str(path), "file")) if isinstance(step, Found | Malformed) else step
            for step in found
        ]
        end = replaced[-1]
        assert isinstance(end, End)
        return [*replaced[:-1], end._replace(reason=end.reason.replace(str(path), "file"))]

    return steps


def records(steps: list[Step]) -> list[object]:
    return [step.record for step in steps if isinstance(step, Found)]


ADA = User(user_id="ada", name="Ada", email="ada@acme.example")
USERS = "userId,name,email\nada,Ada,ada@acme.example\n"


def test_rows_of_one_kind_are_records(steps_of) -> None:
    found, end = steps_of(USERS, kind="user")
    assert (found.record, found.place, found.origin.object) == (ADA, "file:2", ObjectId("users", "ada"))
    assert end == End(Verdict.COMPLETE)


def test_the_column_kind_has_the_kinds_of_the_records(steps_of) -> None:
    content = (
        "kind,userId,name,email,disabled,aliases,organizationId,documentId,accessRole,expiresAt,department\r\n"
        'user,ada,"Lovelace, Ada",,TRUE,"[""ada@acme.example"", ""al""]",,,,,"two\r\nlines"\r\n'
        "\r\n"
        "grant,ada,,,,,acme,roadmap,viewer,2027-01-31 18:00,\r\n"
        "membership,ada,,,,,acme,,editor,infinity,\r\n"
    )
    steps = steps_of(content, timezone="Europe/Berlin", line_breaks=True)
    user, grant, membership = records(steps)
    assert isinstance(user, User)
    assert (user.name, user.email, user.disabled, user.aliases) == (
        "Lovelace, Ada",
        "",
        True,
        ("ada@acme.example", "al"),
    )
    assert user.extra_fields == {"department": "two\r\nlines"}
    assert isinstance(grant, Grant)
    assert grant.expires_at is not None
    assert (grant.access_role, grant.expires_at.isoformat()) == (AccessRole.VIEWER, "2027-01-31T17:00:00+00:00")
    assert isinstance(membership, Membership)
    assert membership.expires_at is None
    assert [step.place for step in steps if isinstance(step, Found)] == ["file:2", "file:5", "file:6"]


def test_an_empty_access_cell_is_malformed_unless_declared_absent(steps_of) -> None:
    content = "organizationId,userId,accessRole,expiresAt\nacme,ada,viewer,\nacme,ann,,2030-01-01T00:00:00Z\n"
    steps = steps_of(content, kind="membership")
    assert [(step.place, step.object.id) for step in steps[:2]] == [("file:2", "acme/ada"), ("file:3", "acme/ann")]
    # What the malformed rows provided before is kept, because their keys identify them.
    assert steps[2] == End(Verdict.PARTIAL, "2 malformed rows", except_malformed=True)
    found, malformed, _ = steps_of(content, kind="membership", null_is_absent=["expiresAt"])
    assert (found.record.user_id, found.record.expires_at) == ("ada", None)
    assert malformed.reason.startswith("accessRole: ")


def test_rows_are_objects_for_rules(steps_of) -> None:
    rules = [
        {
            "from": "rows",
            "user": {
                "userId": "it.id",
                "name": "it.first + ' ' + it.last",
                "email": "lower(it.mail)",
                "disabled": 'it.status == "left"',
            },
        },
        {"from": "rows", "when": "has(it.team)", "membership": {"organizationId": "it.team", "userId": "it.id"}},
    ]
    content = (
        "id;first;last;mail;status;team\n7;Ada;Lovelace;ADA@x.example;active;acme\n8;Ann;Lee;;left;\n9;Al;B;b@x;;\n"
    )
    steps = steps_of(content, delimiter=";", map=rules)
    user, membership = records(steps)
    assert user == User(user_id="7", name="Ada Lovelace", email="ada@x.example")
    assert membership == Membership(organization_id="acme", user_id="7")
    assert [(step.place, step.object, step.disabled) for step in steps if isinstance(step, Malformed)] == [
        ("file:3", ObjectId("rows", "8"), True),  # no mail
        ("file:4", ObjectId("rows", "9"), False),  # an empty status must not enable
    ]
    assert steps[-1] == End(Verdict.PARTIAL, "2 malformed records", except_malformed=True)


@pytest.mark.parametrize(
    ("content", "settings", "reason"),
    [
        ("it,mail\n1,a\n", {}, "file: has no column id; let key name the columns that identify a row"),
        ("id;mail\n1;a\n", {}, "file: has no column 'mail', which a rule of map names; it has 'id;mail'; if the file"),
        ("id,mail\n1,a\n", {"key": "no"}, "file: has no column 'no', which key names; it has 'id', 'mail'"),
    ],
)
def test_columns_that_rules_need_must_exist(steps_of, content: str, settings: dict[str, object], reason: str) -> None:
    rules = [{"from": "rows", "user": {"userId": "it.mail", "name": "it.mail", "email": "it.mail"}}]
    [end] = steps_of(content, map=rules, **settings)
    assert end.verdict is Verdict.FAILED
    assert end.reason.startswith(reason)


def test_a_row_without_its_key_makes_the_read_partial(steps_of) -> None:
    rules = [{"from": "rows", "user": {"userId": "it.mail", "name": "it.mail", "email": "it.mail"}}]
    found, malformed, end = steps_of("team,no,mail\na,1,x\n,,y\n", map=rules, key=["team", "no"])
    assert found.origin.object == ObjectId("rows", "a/1")
    assert malformed == Malformed("file:3", "team, no: is empty or invalid, and identifies the row")
    assert (end.verdict, end.except_malformed) == (Verdict.PARTIAL, False)


def test_a_row_of_another_width_is_malformed_with_its_line(steps_of) -> None:
    content = USERS + "ann,Ann\n" + 'bo,"two\nlines",b@x\n' + "cy,Cy,c@x,more\n"
    steps = steps_of(content, kind="user", line_breaks=True)
    assert [step for step in steps if isinstance(step, Malformed)] == [
        Malformed("file:3", "has 2 cells, but the header has 3"),
        Malformed("file:6", "has 4 cells, but the header has 3"),
    ]
    assert [step.place for step in steps if isinstance(step, Found)] == ["file:2", "file:4"]
    assert steps[-1] == End(Verdict.PARTIAL, "2 malformed rows")


SWALLOWED = 'a,"Bob,a@x\nb,Ann,b@x\nc,Cy",c@x\n'
"""Two unbalanced quotes: one row of three cells."""
RULES = [{"from": "rows", "user": {"userId": "it.userId", "name": "it.name", "email": "it.email"}}]
UNBALANCED = "has 3 lines; check for an unbalanced quote, or set line_breaks: true if cells may contain line breaks"


def test_rows_that_two_unbalanced_quotes_swallow_make_the_read_partial(steps_of) -> None:
    for more in ({"kind": "user"}, {"map": RULES, "key": ["userId"]}):
        steps = steps_of(USERS + SWALLOWED + "d,Di,d@x\n", **more)
        assert [step.place for step in steps if isinstance(step, Found)] == ["file:2", "file:6"]
        assert [step for step in steps if isinstance(step, Malformed)] == [Malformed("file:3", UNBALANCED)]
        assert (steps[-1].verdict, steps[-1].except_malformed) == (Verdict.PARTIAL, False)
    assert steps_of(USERS + SWALLOWED, kind="user", line_breaks=True)[-1] == End(Verdict.COMPLETE)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_blank_lines_and_line_ends_are_no_line_breaks(steps_of, end: str) -> None:
    steps = steps_of((USERS + "\nann,Ann,a@x\n\n").replace("\n", end), kind="user")
    assert [step.place for step in steps[:-1]] == ["file:2", "file:4"]
    assert steps[-1] == End(Verdict.COMPLETE)


@pytest.mark.parametrize(
    ("content", "settings", "reason"),
    [
        ('userId,"na\nme",email\n', {}, "file:1: the first row has 2 lines; check for an unbalanced quote"),
        ("", {}, "file: is empty; the first row must have the names of the columns"),
        ("\n\n", {}, "file: is empty"),
        ("userId,name,email,name\n", {}, "file:1: several columns are called 'name'; give each a name of its own"),
        ("\nuserId,,email\n", {}, "file:2: column 2 has no valid name"),
        ("userId, ,email\n", {}, "file:1: column 2 has no valid name"),
        ("userId,na\0me,email\n", {}, "file:1: column 2 has no valid name"),
        ("userId;name;email\n", {}, "file: lacks userId, name, email, which user records need; it has 'userId;na"),
        ("userId,name,email,disabeld\n", {}, "file: the column 'disabeld': is not a field of a user; did you mean"),
        ("userId,name,email\nada,Ada,a@x", {}, "file:2: the last line has no line end, so that the file may be trunc"),
        (USERS + 'ann,"Ann,a@x\n', {}, "file:3: not CSV: unexpected end of data"),
        (USERS + 'ann,"Ann"x,a@x\n', {}, "file:3: not CSV: ',' expected after '\"'"),
        (USERS + f"ann,{'x' * 200_000},a@x\n", {}, "file:3: not CSV: field larger than field limit"),
        (USERS + "x," * 600_000 + "\n", {}, "file:3: the row is longer than 1,048,576 characters"),
        (USERS + '"x\n",' * 600_000 + "\n", {}, "the row is longer than 1,048,576 characters"),
        (USERS.encode() + b"ann,Ann,a@x\nbo,B\xf6,b@x\n" + b"x" * 90_000, {}, "file:4: the bytes are not UTF-8"),
        (USERS.encode() * 9_000 + b"\xff\n", {}, "file:18001: the bytes are not UTF-8"),
        (USERS.encode(), {"encoding": "utf-16"}, "file:1: the bytes are not utf-16"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_file_that_cannot_be_trusted_is_failed(
    steps_of, content: str | bytes, settings: dict[str, object], reason: str
) -> None:
    end = steps_of(content, kind="user", **settings)[-1]
    assert end.verdict is Verdict.FAILED
    assert reason in end.reason
    assert len(end.reason) < 1000


def test_an_empty_kind_is_malformed(steps_of) -> None:
    malformed, end = steps_of("kind,userId,name,email\n,ada,Ada,a@x\n")
    assert malformed == Malformed("file:2", "kind: is empty")
    assert end.verdict is Verdict.PARTIAL


def test_many_columns_are_checked_in_a_moment(steps_of) -> None:
    columns = ",".join(f"c{number}" for number in range(50_000))
    began = time.process_time()
    [end] = steps_of(f"{columns},c7\n", kind="user")
    assert end.reason == "file:1: several columns are called 'c7'; give each a name of its own"
    assert time.process_time() - began < 2


def test_a_file_without_a_column_kind_needs_a_kind(steps_of) -> None:
    [end] = steps_of(USERS)
    assert end.reason == "file: has no column kind; let kind name the kind of its records, or write rules in map"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_files_are_read_in_their_encoding(steps_of, encoding: str) -> None:
    content = "\ufeff" * (encoding == "utf-8") + USERS.replace("Ada", "Äda").replace("\n", "\r\n")
    assert records(steps_of(content.encode(encoding), kind="user", encoding=encoding)) == [
        User(user_id="ada", name="Äda", email="ada@acme.example")
    ]


def test_a_last_line_without_a_line_end_is_read_if_that_is_usual(steps_of) -> None:
    assert records(steps_of(USERS.strip(), kind="user", require_line_end=False)) == [ADA]


@pytest.mark.parametrize("rest", [b"", b"userId,name,email\n"])
def test_a_file_that_changes_while_it_is_read_is_failed(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(USERS.encode() + b"ann,Ann,a@x.example\n" * 10_000)
    reading = csv_source(path, kind="user").read()
    assert isinstance(next(reading), Found)
    path.write_bytes(rest)
    *_, end = reading
    assert isinstance(end, End)
    assert end.verdict is Verdict.FAILED


@pytest.mark.extended
def test_rows_are_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "many.csv.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write("userId,name,email\n")
        file.writelines(f"user-{number},Name,a@b.example\n" for number in range(20_000))
    tracemalloc.start()
    try:
        assert sum(isinstance(step, Found) for step in csv_source(path, kind="user").read()) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"delimiter": ""}, "should be one character"),
        ({"delimiter": '"'}, "should be one character"),
        ({"delimiter": "x"}, "should be one character"),
        ({"encoding": "utf-9"}, "not an encoding"),
        ({"encoding": "base64"}, "not an encoding"),
        ({"encoding": "utf-8\0"}, "not an encoding"),
        ({"kind": "users"}, "did you mean user"),
        ({"timezone": "Mars"}, "not a time zone"),
        ({"kind": "user", "map": [{"from": "rows", "fill": {"userId": "it.id"}}]}, "kind and map exclude each other"),
        (
            {"null_is_absent": ["expiresAt"], "map": [{"from": "rows", "fill": {"userId": "it.id"}}]},
            "no effect with map",
        ),
        ({"timezone": "Europe/Berlin", "map": [{"from": "rows", "fill": {"userId": "it.id"}}]}, "no effect with map"),
        ({"map": [{"from": "users", "fill": {"userId": "it.id"}}]}, "reads from users, but the sets are rows"),
        (
            {"map": [{"from": "rows", "each": "members", "fill": {"userId": "member.id"}}]},
            "rows have no members",
        ),
        ({"map": []}, "at least 1 item"),
    ],
)
def test_settings_refuse(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        DirectorySettings.model_validate({"sources": [{"type": "csv", "path": "a.csv", **settings}]})
