"""Editor documents, read back in Python and by the JavaScript library of the editors."""

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from app.backend.editor import editor_data, xml_content
from app.backend.editor.editor_data import EditorDataError
from app.backend.editor.tables import EDITOR_DATA
from app.backend.editor.xml_content import Element, Node, XmlContentError
from tests.choice import examples

from .conftest import BackendWorld, Caller

LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TEXTS = st.text(st.sampled_from("ab é😀\n") | LETTERS, max_size=12)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
MAPS = st.dictionaries(st.sampled_from("abc") | TEXTS, JSON, max_size=5)
ARRAYS = st.lists(st.sampled_from([1, True, None, "a", {"a": 1}]) | JSON, max_size=6)
XML_TEXTS = st.text(st.sampled_from("ab<&>\"' é😀\n\t\r"), min_size=1, max_size=6)
TAGS = st.sampled_from(["p", "h1", "w:r", "é"])
ATTRIBUTES = st.dictionaries(st.sampled_from(["class", "w:id", "k"]), XML_TEXTS, max_size=2)


def written(nodes: list[Node]) -> str:
    return xml_content.write(nodes)


def separate_texts(nodes: list[Node]) -> list[Node]:
    return [node for n, node in enumerate(nodes) if not (n and isinstance(node, str) and isinstance(nodes[n - 1], str))]


FRAGMENTS: st.SearchStrategy[list[Node]] = st.recursive(
    st.lists(XML_TEXTS, max_size=1),
    lambda inner: st.lists(XML_TEXTS | st.builds(Element, TAGS, ATTRIBUTES, inner), max_size=4).map(separate_texts),
    max_leaves=8,
)
VALUES = {"text": TEXTS, "map": MAPS, "array": ARRAYS, "xml": FRAGMENTS.map(written)}


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), kind=st.sampled_from(sorted(VALUES)), key=st.sampled_from(["content", "default", "schlüssel"]))
def test_a_document_contains_the_last_written_value(data: Any, kind: Any, key: str) -> None:
    state = b""
    for number in range(1, 4):
        value = data.draw(VALUES[kind])
        if number == 1:
            state = editor_data.new_state(kind, key, value, number)
        else:
            state = editor_data.changed_state(state, kind, key, value, number)
        assert json.dumps(editor_data.value_of(state, kind, key), sort_keys=True) == json.dumps(
            as_stored(value), sort_keys=True
        )


def as_stored(value: Any) -> Any:
    """The value with whole numbers as integers."""
    if isinstance(value, dict):
        return {key: as_stored(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_stored(inner) for inner in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    return value


@given(FRAGMENTS)
def test_written_xml_is_parsed_to_the_same_nodes(nodes: list[Node]) -> None:
    assert xml_content.parse(xml_content.write(nodes)) == nodes


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("", []),
        ("plain", ["plain"]),
        ("\n plain \n", ["\n plain \n"]),
        ('<?xml version="1.0"?><p/>', [Element("p")]),
        ("<![CDATA[a < b]]> &amp; &#233;", ["a < b & é"]),
        ('<a x="1"><b/>t</a>u', [Element("a", {"x": "1"}, [Element("b"), "t"]), "u"]),
        ("<p>" * 64 + "</p>" * 64, None),
    ],
)
def test_xml_is_parsed(text: str, nodes: list[Node] | None) -> None:
    assert nodes is None or xml_content.parse(text) == nodes
    assert xml_content.parse(xml_content.write(xml_content.parse(text))) == xml_content.parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<p>", "is not well-formed XML: mismatched tag, line 1"),
        ("a\n</fragment><fragment>", "is not well-formed XML: junk after document element, line 2"),
        ("a & b", "is not well-formed XML: not well-formed (invalid token), line 1"),
        ("<br>\n<p></p>", "is not well-formed XML: mismatched tag, line 2"),
        ("&nbsp;", "is not well-formed XML: undefined entity, line 1"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "is not well-formed XML: not well-formed (invalid token), line 1"),
        ("\x01", "is not well-formed XML: not well-formed (invalid token), line 1"),
        ("<p><!-- note --></p>", "must not hold comments or processing instructions"),
        ("<?php ?>", "must not hold comments or processing instructions"),
        ("<p>" * 65 + "</p>" * 65, "must not be nested deeper than 64 levels"),
        ("<p>" * 100_000, "must not be nested deeper than 64 levels"),
    ],
)
def test_invalid_xml_is_refused(text: str, reason: str) -> None:
    with pytest.raises(XmlContentError) as caught:
        xml_content.parse(text)
    assert str(caught.value) == reason


def test_numbers_have_the_precision_of_javascript() -> None:
    state = editor_data.new_state("array", "content", [2**53, 2**53 + 1, 2**63, 1.0, 1e300, -0.5], 1)
    assert editor_data.value_of(state, "array", "content") == [2**53, 2**53, float(2**63), 1, 1e300, -0.5]
    with pytest.raises(EditorDataError, match="holds a number that is too large"):
        editor_data.new_state("map", "content", {"a": [10**400]}, 1)


def test_a_small_edit_of_long_content_is_a_small_update() -> None:
    long = "😀 Lörem ipsum " * 10_000
    paragraphs = [f"<p>paragraph {number} with some text in it</p>" for number in range(2000)]
    contents: list[tuple[Any, Any, Any]] = [
        ("text", long + long, long + "é" + long),
        ("array", list(range(20_000)), [*range(10_000), "new", *range(10_001, 20_000)]),
        ("map", {str(n): n for n in range(5000)}, {str(n): n if n != 7 else True for n in range(5000)}),
        ("xml", "".join(paragraphs), "".join([*paragraphs[:9], "<p>paragraph 9, edited</p>", *paragraphs[10:]])),
    ]
    for kind, before, after in contents:
        first = editor_data.new_state(kind, "content", before, 1)
        second = editor_data.changed_state(first, kind, "content", after, 2)
        assert editor_data.value_of(second, kind, "content") == after
        assert len(second) < len(first) + 200, kind
        assert editor_data.changed_state(second, kind, "content", after, 3) == second


@pytest.fixture(scope="session")
def yjs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which Node finds the `yjs` package."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("there is no node and npm on this machine, so the JavaScript library cannot run")
    folder = tmp_path_factory.mktemp("yjs")
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), "yjs@13"]
    try:
        install = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=90, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm could not install the yjs package within 90 seconds")
    if install.returncode:
        pytest.skip(f"npm could not install the yjs package: {install.stderr.strip().splitlines()[-1:]}")
    shutil.copy(Path(__file__).with_name("yjs_reader.js"), folder)
    return folder


def read_in_javascript(folder: Path, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    node = shutil.which("node")
    assert node is not None
    done = subprocess.run(
        [node, "yjs_reader.js"], cwd=folder, input=json.dumps(requests), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def update(state: bytes) -> str:
    return base64.b64encode(state).decode()


TEXT = "Grüße, 世界! 😀👩‍🚀 𝔘nicode\n\ttabs"
CONTENT: list[tuple[Any, Any, Any]] = [
    ("text", TEXT, TEXT),
    ("text", "", ""),
    (
        "map",
        {"title": "T 😀", "n": 3, "big": 2**53, "f": 0.1, "list": [1, [2, {"a": None}]], "": True, "none": None},
        None,
    ),
    ("map", {}, None),
    ("array", [1, 2.5, "drei", None, True, {"a": {"b": []}}, [[]], 1e21, -1], None),
    ("array", [], None),
    (
        "xml",
        '<p class="a &amp; &quot;b&quot;" w:id="😀">a &lt; <b>bold</b> &amp; c</p><hr/>tail',
        [
            {
                "tag": "p",
                "attributes": {"class": 'a & "b"', "w:id": "😀"},
                "children": ["a < ", {"tag": "b", "attributes": {}, "children": ["bold"]}, " & c"],
            },
            {"tag": "hr", "attributes": {}, "children": []},
            "tail",
        ],
    ),
    ("xml", "", []),
]


@pytest.mark.external
def test_javascript_reads_the_same_content(yjs_folder: Path) -> None:
    requests: list[dict[str, Any]] = []
    for kind, value, _ in CONTENT:
        for key in ("content", "default"):
            first = editor_data.new_state(kind, key, value, 1)
            emptied = editor_data.changed_state(first, kind, key, type(value)(), 2)
            again = editor_data.changed_state(emptied, kind, key, value, 3)
            requests.extend({"type": kind, "key": key, "updates": [update(state)]} for state in (first, again))
    answers = read_in_javascript(yjs_folder, requests)
    expected = [value if decoded is None else decoded for kind, value, decoded in CONTENT for _ in range(4)]
    assert [answer["value"] for answer in answers] == expected
    assert [answer["version"] for answer in answers] == [None] * len(answers)


@pytest.mark.external
def test_an_update_merges_with_a_concurrent_change_of_a_client(yjs_folder: Path) -> None:
    first = editor_data.new_state("text", "content", "one 😀 three", 1)
    second = editor_data.changed_state(first, "text", "content", "one 😀 two three", 2)

    (answer,) = read_in_javascript(
        yjs_folder,
        [
            {
                "type": "text",
                "key": "content",
                "updates": [update(first), update(second)],
                "insert": {"position": 0, "text": "zero "},
            }
        ],
    )

    assert answer["value"] == "zero one 😀 two three"


@pytest.mark.external
def test_javascript_reads_the_stored_state(yjs_folder: Path, world: BackendWorld, tenant: Caller) -> None:
    requests: list[dict[str, Any]] = []
    for number, (kind, value, _) in enumerate(CONTENT):
        editor = {"organizationId": "acme", "documentId": "d", "editorId": f"e{number}"}
        key = {} if number % 2 else {"contentKey": "default"}
        tenant("add_crdt_data", **editor, data=type(value)(), type=kind, **key)
        tenant("update_crdt_data", **editor, data=value, type=kind)
        with world.engine.connect() as connection:
            state = connection.scalar(select(EDITOR_DATA.c.state).where(EDITOR_DATA.c.editor_id == editor["editorId"]))
        assert state is not None
        requests.append({"type": kind, "key": key.get("contentKey", "content"), "updates": [update(state)]})

    answers = read_in_javascript(yjs_folder, requests)

    assert [answer["value"] for answer in answers] == [
        value if decoded is None else decoded for _, value, decoded in CONTENT
    ]
