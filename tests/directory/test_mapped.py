"""Sources of connectors and rules: records, members, and incremental reads."""

import os
import random
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.access.records import Membership, User
from app.directory.connector import DirectoryObject, Objects, RequestedFields
from app.directory.mapping.rules import Rules
from app.directory.mapping.source import MappedSource
from app.directory.mapping.spool_file import SpoolFile
from app.directory.source import (
    EVERYTHING,
    Answered,
    End,
    Found,
    Gone,
    Malformed,
    ObjectId,
    Origin,
    Part,
    ReadRequest,
    Remark,
    Source,
    Verdict,
)
from app.directory.testing.contract import SourceContract
from app.directory.testing.world import Content, KeptRecords, SourceWorld, read
from tests.choice import sampled
from tests.worlds.object_directory import ObjectDirectory, rules_of, thing

COMPANY = """
- {from: users, when: has(it.mail), user: {userId: it.id, name: it.name, email: lower(it.mail)}}
- {from: groups, when: 'it.cn.startsWith("org-")',
   organization: {organizationId: it.cn.substring(4), organizationName: it.description}}
- {from: groups, when: 'it.cn.startsWith("org-")', each: members,
   membership: {organizationId: it.cn.substring(4), userId: member.userId, accessRole: '"viewer"'}}
"""

PEOPLE = """
- {from: users, user: {userId: it.uid, name: it.name, email: it.mail, odd: it.odd}}
- {from: groups, each: members, membership: {organizationId: it.cn, userId: member.userId}}
"""


def user(id_: str, **values: object) -> DirectoryObject:
    return thing("users", id_, {"id": id_, "name": id_.title(), "mail": f"{id_}@Corp.Example", **values})


def group(cn: str, *members: str, **values: object) -> DirectoryObject:
    return thing("groups", cn, {"cn": cn, "description": cn.title(), **values}, members)


def memberships(steps: Iterable[object]) -> set[tuple[str, str]]:
    return {
        (step.record.organization_id, step.record.user_id or "")
        for step in steps
        if isinstance(step, Found) and isinstance(step.record, Membership)
    }


@pytest.fixture
def directory() -> ObjectDirectory:
    return ObjectDirectory()


@pytest.fixture
def spool(tmp_path: Path) -> SpoolFile:
    return SpoolFile.of(tmp_path / "spool", "ad")


def source_of(directory: ObjectDirectory, rules: str | Rules = COMPANY, spool: SpoolFile | None = None) -> MappedSource:
    return MappedSource("ad", directory, rules_of(rules) if isinstance(rules, str) else rules, spool)


def test_rules_make_records_of_objects_with_their_origins(directory: ObjectDirectory) -> None:
    directory.put(user("ada"), group("org-acme", "users/ada"), group("other", "users/ada"))
    steps = read(source_of(directory))
    assert steps[0] == Found(
        User(user_id="ada", name="Ada", email="ada@corp.example"), "users/ada", Origin(ObjectId("users", "ada"), "1")
    )
    assert [(step.record.kind, step.origin) for step in steps[1:-1] if isinstance(step, Found)] == [
        ("organization", Origin(ObjectId("groups", "org-acme"), "2")),
        ("membership", Origin(ObjectId("groups", "org-acme"), "3")),
    ]
    assert steps[-1] == End(Verdict.COMPLETE, "", "state 3")


def test_only_named_attributes_are_requested(directory: ObjectDirectory) -> None:
    read(source_of(directory))
    wanted = directory.asked[0][0]
    assert wanted.attributes == {"users": {"id", "name", "mail"}, "groups": {"cn", "description"}}
    assert wanted.members == {"groups"}
    plain = rules_of("[{from: rows, fill: it.mail, user: {disabled: 'it.status == \"left\"'}}]").wanted
    assert (plain.attributes, plain.members) == ({"rows": {"mail", "status"}}, set())
    # Who is no user here is named by an attribute of theirs.
    elsewhere = rules_of(
        "[{from: groups, each: members, membership: {organizationId: it.cn, userId: member.employeeNumber}}]"
    ).wanted
    assert elsewhere.attributes == {"groups": {"cn"}, "users": {"employeeNumber"}}


def test_constants_are_kept_and_missing_attributes_make_fields_absent(directory: ObjectDirectory) -> None:
    directory.put(thing("rows", "1", {"id": "1", "name": "N"}))
    rules = "[{from: rows, user: {userId: it.id, name: it.name, email: '\"\"', initial: it.no, disabled: true, n: 3}}]"
    (step, _) = read(source_of(directory, rules))
    assert isinstance(step, Found)
    assert step.record == User(user_id="1", name="N", email="", disabled=True, extra_fields={"n": 3})


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("[{from: rows, user: {userId: it.no, name: it.name, email: it.name}}]", "rule 1: userId: is missing"),
        ("[{from: rows, user: {userId: it.n, name: it.name, email: it.name}}]", "but is a number; write string(…)"),
        ("[{from: rows, user: {userId: it.name.substring(9), name: it.name, email: it.name}}]", "rule 1: userId: <str"),
        ("[{from: rows, when: it.name, user: {userId: it.name, name: it.name, email: it.name}}]", "when: must be true"),
        ("[{from: rows, when: it.n / 0 == 1, user: {userId: it.n, name: it.n, email: it.n}}]", "when: divide by zero"),
        ("[{from: rows, user: {userId: it.nul, name: it.name, email: it.name}}]", "nul: contains a NUL character"),
    ],
)
def test_malformed_objects_have_place_and_rule(directory: ObjectDirectory, rules: str, reason: str) -> None:
    directory.put(thing("rows", "1", {"name": "N", "n": 1, "nul": "\0"}))
    malformed, end = read(source_of(directory, rules))
    assert isinstance(malformed, Malformed)
    assert malformed.place == "rows/1"
    assert reason in malformed.reason
    assert end == End(Verdict.PARTIAL, "1 malformed record", "state 1", except_malformed=True)
    assert malformed.object == ObjectId("rows", "1")


def test_when_is_false_if_an_attribute_is_missing(directory: ObjectDirectory) -> None:
    directory.put(thing("rows", "1", {"name": "N"}), thing("rows", "2", {"name": "N", "status": "in"}))
    steps = read(
        source_of(
            directory, "[{from: rows, when: it.status == 'in', user: {userId: it.name, name: it.name, email: it.name}}]"
        )
    )
    assert [step.place for step in steps if isinstance(step, Found)] == ["rows/2"]
    assert isinstance(steps[-1], End)
    assert steps[-1].verdict is Verdict.COMPLETE


def test_a_remark_of_a_rule_is_reported_once(directory: ObjectDirectory) -> None:
    directory.put(*(thing("rows", str(number), {"id": str(number)}) for number in range(50)))
    steps = read(
        source_of(directory, "[{from: rows, user: {userId: it.id, name: it.id, email: it.id, exipresAt: it.id}}]")
    )
    assert len([step for step in steps if isinstance(step, Remark)]) <= 1


# Members.


def test_members_are_found_through_nested_groups_and_around_cycles(directory: ObjectDirectory) -> None:
    directory.put(
        user("ada"),
        user("bob"),
        user("cyd"),
        user("none", mail=None),
        group("org-acme", "groups/eng", "users/ada", "users/ada"),
        group("eng", "groups/deep", "users/bob", "groups/org-acme"),
        group("deep", "groups/eng", "groups/deep", "users/cyd", "users/none", "contacts/x"),
        group("org-empty"),
    )
    steps = read(source_of(directory, COMPANY.replace("has(it.mail)", "it.mail != null")))
    assert memberships(steps) == {("acme", "ada"), ("acme", "bob"), ("acme", "cyd")}
    found = [step.record for step in steps if isinstance(step, Found)]
    assert len(found) == len(set(found))
    assert [step.reason for step in steps if isinstance(step, Remark)] == [
        "1 member is not in scope, for example contacts/x: no object has this name",
        "1 member is skipped, because no user is made of them",
    ]
    end = steps[-1]
    assert isinstance(end, End)
    assert end.verdict is Verdict.COMPLETE


def test_an_ambiguous_name_names_no_member(directory: ObjectDirectory) -> None:
    """A group names ``jdoe``, which one entry is in ``ou=people``, and another in ``ou=left``."""
    rules = COMPANY + "- {from: admins, user: {userId: it.id, name: it.name, email: it.mail}}\n"
    left = thing("users", "2", dict(user("2").value), names=("jdoe",))
    directory.put(
        thing("users", "1", dict(user("1").value), names=("jdoe",)),
        left,
        user("ada"),
        # One object in two sets is one object.
        thing("admins", "ada", dict(user("ada").value), names=("users/ada",))._replace(place="users/ada"),
        group("org-acme", "jdoe", "users/ada", "groups/inner"),
        group("inner", "jdoe"),
    )
    steps = read(source_of(directory, rules))
    assert memberships(steps) == {("acme", "ada")}
    assert end_of(steps).verdict is Verdict.COMPLETE
    [remark] = [step for step in steps if isinstance(step, Remark)]
    assert "2 members are ambiguous: several objects have the name jdoe" in remark.reason
    directory.remove("users", "2")
    assert memberships(read(source_of(directory, rules))) == {("acme", "ada"), ("acme", "1")}


def test_a_name_becomes_ambiguous_and_unique_again(directory: ObjectDirectory, spool: SpoolFile) -> None:
    directory.put(thing("users", "1", dict(user("1").value), names=("jdoe",)), group("org-acme", "jdoe"))
    kept = KeptRecords()
    kept.take(read(source_of(directory, spool=spool)))
    for step in ("another", "gone"):
        if step == "another":
            directory.put(thing("users", "2", dict(user("2").value), names=("jdoe",)))
        else:
            directory.remove("users", "1")
        steps = read(source_of(directory, spool=spool), ReadRequest(since=kept.cursor))
        kept.take(steps)
        assert end_of(steps).answered is Answered.CHANGES
        assert memberships(steps) == (set() if step == "another" else {("acme", "2")})


def test_groups_may_come_before_their_members(directory: ObjectDirectory) -> None:
    directory.put(group("org-acme", "groups/eng"), group("eng", "users/ada"), user("ada"))
    assert memberships(read(source_of(directory))) == {("acme", "ada")}


def test_the_last_of_two_equal_objects_is_used(directory: ObjectDirectory) -> None:
    class Twice(ObjectDirectory):
        def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Iterator[Any]:
            yield group("org-acme", "users/ada", "users/bob")
            yield user("ada")
            yield group("org-acme", "users/ada")
            yield from super().read(wanted, request)

    directory = Twice()
    directory.put(user("bob"))
    assert memberships(read(source_of(directory))) == {("acme", "ada")}


def test_members_without_a_user_have_attributes(directory: ObjectDirectory) -> None:
    directory.put(thing("users", "1", {"number": "e1"}), thing("users", "2", {}), group("acme", "users/1", "users/2"))
    rules = "[{from: groups, each: members, membership: {organizationId: it.cn, userId: member.number}}]"
    assert memberships(read(source_of(directory, rules))) == {("acme", "e1")}


def test_when_may_use_the_member(directory: ObjectDirectory) -> None:
    directory.put(user("ada", title="boss"), user("bob", title="clerk"), user("cyd"))
    directory.put(group("org-acme", "users/ada", "users/bob", "users/cyd"))
    rules = COMPANY.replace("each: members", "each: members, when: member.title == 'boss'").replace(
        """when: 'it.cn.startsWith("org-")', each""", "each"
    )
    assert memberships(read(source_of(directory, rules))) == {("acme", "ada")}


def test_groups_without_a_matching_member_are_not_malformed(directory: ObjectDirectory) -> None:
    directory.put(user("ada", title="boss"), user("bob", title="clerk"))
    directory.put(group("org", "users/ada"), group("it", "users/bob"), group("org-acme", "users/ada"))
    rules = COMPANY.replace("""when: 'it.cn.startsWith("org-")', each""", """when: 'WHEN', each""")
    both = rules.replace("WHEN", """member.title == "boss" && it.cn.startsWith("org-")""")
    of_member = rules.replace("WHEN", '''member.title == "boss"''')
    assert memberships(read(source_of(directory, both))) == {("acme", "ada")}
    assert not [step for step in read(source_of(directory, both)) if isinstance(step, Malformed)]
    (malformed,) = (step for step in read(source_of(directory, of_member)) if isinstance(step, Malformed))
    assert (malformed.place, "member users/ada" in malformed.reason) == ("groups/org", True)


class Looker:
    """An observer without effect. Its presence makes the source process members one by one."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.mark.parametrize(
    "of_members",
    [
        "userId: member.userId",
        "userId: lower(member.userId)",
        "userId: member.userId, userAlias: member.mail",
        "userId: member.userId, expiresAt: member.until",
        "userId: member.userId, 'x-note': member.odd",
    ],
)
def test_an_observer_does_not_change_the_steps(directory: ObjectDirectory, of_members: str) -> None:
    odd = [None, "", "x" * 600, "a\u00e4", 7, ["a"], "2027-01-31T18:00:00Z", "no time"]
    directory.put(*(user(f"u{number}", until=value, odd=value) for number, value in enumerate(odd)), user("U", mail=3))
    directory.put(group("org-acme", *(f"users/u{number}" for number in range(8)), "users/U", "users/none"))
    directory.put(group("org-", "users/u1"))
    rules = COMPANY.replace("userId: member.userId", of_members)
    rules += "- {from: groups, each: members, membership: {organizationId: it.cn, userAlias: member.mail}}"
    source = source_of(directory, rules)
    together = list(source.read())
    assert together == list(source.observed(EVERYTHING, Looker()))
    assert len([step for step in together if isinstance(step, Found)]) > 8


def test_a_name_with_a_nul_is_not_shortened(directory: ObjectDirectory) -> None:
    directory.put(user("ada"), group("org-acme", "users/ada\0b"))
    assert memberships(read(source_of(directory))) == set()


@pytest.mark.extended
def test_twenty_thousand_members_take_seconds(directory: ObjectDirectory) -> None:
    directory.put(*(user(f"u{number}") for number in range(20_000)))
    directory.put(
        group("org-all", *(f"users/u{number}" for number in range(20_000))), group("org-top", "groups/org-all")
    )

    began = time.process_time()
    assert len(memberships(read(source_of(directory)))) == 40_000
    assert time.process_time() - began < 10


def test_a_failed_read_yields_no_memberships(directory: ObjectDirectory) -> None:
    directory.put(group("org-acme", "users/ada", "users/bob"), user("ada"), user("bob"))
    for breaks in range(4):
        directory.breaks_after = breaks
        steps = read(source_of(directory))
        assert memberships(steps) <= {("acme", "ada"), ("acme", "bob")}
        end = steps[-1]
        assert isinstance(end, End)
        assert end.verdict is not Verdict.COMPLETE


# Changes.


def test_a_change_touches_the_groups_that_name_it_and_those_above(directory: ObjectDirectory, spool: SpoolFile) -> None:
    directory.put(user("ada"), user("bob"), group("eng", "users/ada"), group("org-acme", "groups/eng"))
    directory.put(group("org-other", "users/bob"))
    source = source_of(directory, spool=spool)
    cursor = end_of(read(source)).cursor
    # A new name of ada's is nothing to groups, which ask for the id alone.
    directory.put(user("ada", name="Adele"))
    steps = read(source, ReadRequest(since=cursor))
    assert {step.origin.object.id for step in steps if isinstance(step, Found) and step.origin} == {"ada"}
    # Without an address she is no user any more, which changes whom acme has, and nothing about the other one.
    cursor = end_of(steps).cursor
    directory.put(thing("users", "ada", {"id": "ada", "name": "Ada"}))
    steps = read(source, ReadRequest(since=cursor))
    assert Gone(ObjectId("users", "ada")) in steps
    assert [step.record.kind for step in steps if isinstance(step, Found)] == ["organization"]
    assert [step.origin.object.id for step in steps if isinstance(step, Found) and step.origin] == ["org-acme"]
    assert Gone(ObjectId("groups", "eng")) in steps
    assert end_of(steps).answered is Answered.CHANGES


def end_of(steps: Sequence[object]) -> End:
    end = steps[-1]
    assert isinstance(end, End)
    return end


def test_a_cursor_without_its_spool_is_refused(directory: ObjectDirectory, spool: SpoolFile) -> None:
    directory.put(user("ada"), group("org-acme", "users/ada"))
    source = source_of(directory, spool=spool)
    cursor = end_of(read(source)).cursor
    refused = End(
        Verdict.FAILED,
        "the spool of members is of another cursor; a full read is required",
        answered=Answered.CURSOR_REFUSED,
    )
    assert read(source_of(directory), ReadRequest(since=cursor)) == [refused]
    assert read(source_of(directory, COMPANY + "\n", spool), ReadRequest(since=cursor)) != [refused]
    other_rules = COMPANY.replace('"viewer"', '"editor"')
    assert read(source_of(directory, other_rules, spool), ReadRequest(since=cursor)) == [refused]
    assert read(source, ReadRequest(since="state 0")) == [refused]
    assert spool.path is not None
    spool.path.write_bytes(b"nonsense" * 1000)
    assert read(source, ReadRequest(since=cursor)) == [refused]
    spool.path.unlink()
    assert read(source, ReadRequest(since=cursor)) == [refused]
    assert end_of(read(source)).verdict is Verdict.COMPLETE


def test_lost_changes_can_be_read_again(directory: ObjectDirectory, spool: SpoolFile) -> None:
    directory.put(user("ada"), group("org-acme", "users/ada"))
    source = source_of(directory, spool=spool)
    kept = KeptRecords()
    cursor = end_of(read(source)).cursor
    kept.take(read(source))
    directory.put(thing("users", "ada", {"id": "ada", "name": "Ada"}))
    read(source, ReadRequest(since=cursor))
    kept.take(read(source, ReadRequest(since=cursor)))
    assert kept.content() == Content()


def test_incomplete_changes_are_read_again(directory: ObjectDirectory, spool: SpoolFile) -> None:
    directory.put(user("ada"), group("org-acme", "users/ada"))
    source = source_of(directory, spool=spool)
    kept = KeptRecords()
    cursor = kept.take(read(source)).cursor
    directory.put(user("bob"), thing("users", "ada", {"id": "ada", "name": "Ada"}))
    directory.breaks_after = 1
    end = kept.take(read(source, ReadRequest(since=cursor)))
    assert (end.verdict, end.cursor) == (Verdict.PARTIAL, cursor)
    directory.breaks_after = None
    assert kept.take(read(source, ReadRequest(since=cursor))).verdict is Verdict.COMPLETE
    assert kept.content().people.keys() == {"bob"}
    assert not kept.content().teams


def test_changes_with_an_unnamed_malformed_object_are_read_again(directory: ObjectDirectory, spool: SpoolFile) -> None:
    directory.put(user("ada"), group("org-acme", "users/ada"))
    source = source_of(directory, spool=spool)
    cursor = end_of(read(source)).cursor
    directory.put(user("bob"))

    class Unnamed:
        def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:
            yield Malformed("somewhere", "nobody knows what it is")
            yield from directory.read(wanted, request)

    source.connector = Unnamed()
    end = end_of(read(source, ReadRequest(since=cursor)))
    assert (end.verdict, end.cursor, end.answered) == (Verdict.PARTIAL, cursor, Answered.CHANGES)


def test_a_connector_may_answer_with_everything(directory: ObjectDirectory, spool: SpoolFile) -> None:
    directory.put(user("ada"), user("bob"), group("org-acme", "users/ada", "users/bob"), group("org-x", "users/bob"))
    source = source_of(directory, spool=spool)
    kept = KeptRecords()
    cursor = kept.take(read(source)).cursor
    directory.reports_changes = False
    directory.remove("users", "bob")
    directory.remove("groups", "org-x")
    steps = read(source, ReadRequest(since=cursor))
    assert end_of(steps).answered is None
    kept.take(steps)
    assert kept.content().teams == {"acme": {"ada"}}


def test_a_part_leaves_the_spool_as_it_was(directory: ObjectDirectory, spool: SpoolFile) -> None:
    directory.put(user("ada"), group("org-acme", "users/ada"))
    source = source_of(directory, spool=spool)
    kept = KeptRecords()
    cursor = kept.take(read(source)).cursor
    directory.put(thing("users", "ada", {"id": "ada", "name": "Ada"}))
    part = read(source, ReadRequest(part=Part(user_ids=("ada",), objects=(ObjectId("users", "ada"),))))
    assert end_of(part).answered is Answered.PART
    assert Gone(ObjectId("users", "ada")) in part
    # The next read of changes reports it to readers that did not read the part.
    kept.take(read(source, ReadRequest(since=cursor)))
    assert kept.content() == Content()
    without = source_of(directory)
    assert end_of(read(without, ReadRequest(part=Part(user_ids=("ada",))))).answered is None


def test_only_its_owner_can_read_the_spool(directory: ObjectDirectory, spool: SpoolFile) -> None:
    directory.put(user("ada"), group("org-acme", "users/ada"))
    read(source_of(directory, spool=spool))
    assert spool.path is not None
    assert spool.path.stat().st_mode & 0o777 == 0o600
    assert spool.path.parent.stat().st_mode & 0o777 == 0o700
    assert not list(spool.path.parent.glob("*.part"))
    link = spool.path.rename(spool.path.with_name("elsewhere"))
    spool.path.symlink_to(link)
    end = end_of(read(source_of(directory, spool=spool), ReadRequest(since="state 2")))
    assert end.answered is Answered.CURSOR_REFUSED


def test_a_closed_read_leaves_no_file_behind(directory: ObjectDirectory, spool: SpoolFile) -> None:
    directory.put(user("ada"), user("bob"), group("org-acme", "users/ada"))
    reading = source_of(directory, spool=spool).read()
    next(reading)
    assert spool.path is not None
    assert list(spool.path.parent.glob("*.part"))
    reading.close()  # type: ignore[attr-defined]
    assert not list(spool.path.parent.glob("*.part"))


def test_abandoned_spools_are_removed(directory: ObjectDirectory, spool: SpoolFile) -> None:
    assert spool.path is not None
    spool.path.parent.mkdir()
    old, new = (spool.path.with_name(f"usher-{age}.spool.part") for age in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"")
    os.utime(old, (1, 1))
    read(source_of(directory, spool=spool))
    assert (old.exists(), new.exists()) == (False, True)


def test_an_unusable_folder_fails_the_read(directory: ObjectDirectory, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    directory.put(user("ada"))
    end = end_of(read(source_of(directory, spool=SpoolFile.of(tmp_path / "file", "ad"))))
    assert end.verdict is Verdict.FAILED
    assert end.reason.startswith("the spool of members: ")


def test_a_spool_that_another_process_uses_is_waited_for(
    directory: ObjectDirectory, spool: SpoolFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.directory.mapping.spool_file._LOCK_TIMEOUT", 0.05)
    directory.put(user("ada"), group("org-acme", "users/ada"))
    source = source_of(directory, spool=spool)
    cursor = end_of(read(source)).cursor
    held = source.read(ReadRequest(since=cursor))
    directory.put(user("bob"))
    next(held)
    end = end_of(read(source, ReadRequest(since=cursor)))
    assert (end.verdict, end.answered) == (Verdict.FAILED, None)
    assert "another process" in end.reason
    held.close()  # type: ignore[attr-defined]
    assert end_of(read(source, ReadRequest(since=cursor))).verdict is Verdict.COMPLETE


_SEEDS = range(12)


@pytest.mark.parametrize("seed", sampled(_SEEDS, sample=3))
@pytest.mark.slow
def test_changes_lead_to_the_result_of_a_full_read(seed: int, tmp_path: Path) -> None:
    """For any people, groups in groups, renames, and reads whose changes were lost on their way."""
    chance = random.Random(seed)
    directory = ObjectDirectory()
    spool = SpoolFile.of(tmp_path, "ad")
    kept = KeptRecords()
    kept.take(read(source_of(directory, spool=spool)))
    for _ in range(25):
        for _ in range(chance.randint(1, 4)):
            _change(directory, chance)
        cursor = kept.cursor
        if chance.random() < 0.3:
            read(source_of(directory, spool=spool), ReadRequest(since=cursor))
            _change(directory, chance)
        if chance.random() < 0.2:
            directory.breaks_after = chance.randint(0, 2)
            kept.take(read(source_of(directory, spool=spool), ReadRequest(since=cursor)))
            directory.breaks_after = None
        steps = read(source_of(directory, spool=spool), ReadRequest(since=kept.cursor))
        if end_of(steps).answered is Answered.CURSOR_REFUSED:
            steps = read(source_of(directory, spool=spool))
        kept.take(steps)
        whole = KeptRecords()
        whole.take(read(source_of(directory)))
        assert kept.content() == whole.content()


def _change(directory: ObjectDirectory, chance: random.Random) -> None:
    people = [f"p{number}" for number in range(6)]
    groups = ["org-a", "org-b", "c", "d", "e"]
    names = [f"users/{one}" for one in people] + [f"groups/{one}" for one in groups] + ["users/renamed"]
    if chance.random() < 0.5:
        one = chance.choice(people)
        if chance.random() < 0.25:
            directory.remove("users", one)
            return
        value = {"id": one, "name": chance.choice("xy")} | ({"mail": "m"} if chance.random() < 0.7 else {})
        called = chance.choice([(f"users/{one}",), ("users/renamed",)]) if one in ("p0", "p1") else None
        directory.put(thing("users", one, value, names=called))
    else:
        one = chance.choice(groups)
        if chance.random() < 0.2:
            directory.remove("groups", one)
            return
        directory.put(group(one, *chance.sample(names, chance.randint(0, 4)), description=chance.choice("xy")))


# The contract.


class MappedWorld(SourceWorld):
    """People and teams as users and groups, by rules."""

    def __init__(self, folder: Path) -> None:
        self._directory = ObjectDirectory()
        self._folder = folder
        self._spool = SpoolFile.of(folder, "people")

    def source(self) -> MappedSource:
        return MappedSource("people", self._directory, rules_of(PEOPLE), self._spool)

    def set_content(self, content: Content) -> None:
        wanted = [
            thing("users", one, {"uid": one, "name": person.name, "mail": person.email})
            for one, person in content.people.items()
        ]
        wanted += [
            thing("groups", team, {"cn": team}, tuple(f"users/{one}" for one in sorted(members)))
            for team, members in content.teams.items()
        ]
        for gone in self._directory.held.keys() - {one.id for one in wanted}:
            self._directory.remove(*gone)
        self._directory.put(*wanted)

    def cut(self, share: float):
        return _Cut(self._directory, int(share * len(self._directory.held)))

    def add_unusable(self, person_id: str, text: str) -> None:
        self._directory.put(thing("users", person_id, {"uid": person_id, "name": text, "mail": ""}))

    def add_nested(self, person_id: str, depth: int) -> None:
        deep: object = "x"
        for _ in range(depth):
            deep = [deep]
        self._directory.put(thing("users", person_id, {"uid": person_id, "name": "", "mail": "", "odd": deep}))

    def failures(self) -> Mapping[str, AbstractContextManager[Source]]:
        @contextmanager
        def broken() -> Iterator[Source]:
            # The connection is lost after the last object.
            with _Cut(self._directory, len(self._directory.held)):
                yield self.source()

        @contextmanager
        def without_folder() -> Iterator[Source]:
            (self._folder / "file").write_text("")
            nowhere = SpoolFile.of(self._folder / "file", "people")
            yield MappedSource("people", self._directory, rules_of(PEOPLE), nowhere)

        return {"the connection is lost": broken(), "no folder for the spool": without_folder()}


class _Cut:
    def __init__(self, directory: ObjectDirectory, after: int) -> None:
        self._directory = directory
        self._after = after

    def __enter__(self) -> None:
        self._directory.breaks_after = self._after

    def __exit__(self, *_: object) -> None:
        self._directory.breaks_after = None


class TestMapped(SourceContract):
    many = 10_000

    @pytest.fixture
    def world(self, tmp_path: Path) -> MappedWorld:
        return MappedWorld(tmp_path)

    @pytest.mark.slow
    def test_memory_does_not_grow_with_the_directory(self, world: SourceWorld) -> None:
        super().test_memory_does_not_grow_with_the_directory(world)


def test_without_a_spool_each_read_is_a_full_one(directory: ObjectDirectory) -> None:
    directory.put(user("ada"), group("org-acme", "users/ada"))
    source = source_of(directory)
    kept = KeptRecords()
    cursor = kept.take(read(source)).cursor
    assert end_of(read(source, ReadRequest(since=cursor))).answered is Answered.CURSOR_REFUSED
    assert kept.take(read(source)).verdict is Verdict.COMPLETE


def test_sqlite_supports_the_statements_of_the_spool() -> None:
    assert sqlite3.sqlite_version_info >= (3, 8, 3), "recursive statements"
    assert sqlite3.connect(":memory:").execute("SELECT value FROM json_each('[7]')").fetchone() == (7,)
