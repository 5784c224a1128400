"""Which members of a group the filter in a path selects, as in ``members[value eq "x" and type eq "User"]``."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from scim2_models import InvalidFilterException
from scim2_models.path import AttrPath, CompareOperator, Comparison, FilterNode, LogicalExpr, Not, Present
from scim2_models.path.expressions import LogicalOperator

Member = tuple[str, str, str]
"""The value, type and display name of a member."""

_FIELDS = {"value": 0, "type": 1, "display": 2}
_VALUE = AttrPath("value")
_TESTS: Mapping[CompareOperator, Callable[[str, str], bool]] = {
    CompareOperator.eq: str.__eq__,
    CompareOperator.ne: str.__ne__,
    CompareOperator.co: str.__contains__,
    CompareOperator.sw: str.startswith,
    CompareOperator.ew: str.endswith,
}


def by_name(name: str) -> FilterNode:
    """The filter for the member with a name."""
    return Comparison(_VALUE, CompareOperator.eq, name)


def check_filter(node: FilterNode) -> None:
    """Raises ``InvalidFilterException`` for what members cannot be selected by."""
    for leaf in _leaves(node):
        if not isinstance(leaf, Comparison | Present) or str(leaf.attr_path).lower() not in _FIELDS:
            raise InvalidFilterException(detail="members are selected by value, type and display alone")
        if isinstance(leaf, Comparison) and (leaf.op not in _TESTS or not _is_text(leaf.value)):
            raise InvalidFilterException(detail="members are compared by eq, ne, co, sw and ew with a text")


def comparisons(node: FilterNode) -> int:
    """The number of comparisons with each member of the group; 0 if the filter names its members."""
    return 0 if is_by_name(node) else sum(1 for _ in _leaves(node))


def is_by_name(node: FilterNode) -> bool:
    """Whether a filter can only select members that it names."""
    if isinstance(node, LogicalExpr):
        return (any if node.op == LogicalOperator.and_ else all)(map(is_by_name, node.terms))
    return _is_name(node)


def names_in(node: FilterNode) -> Iterator[str]:
    """The names in a filter."""
    return (leaf.value for leaf in _leaves(node) if isinstance(leaf, Comparison) and _is_name(leaf))


def selected(
    node: FilterNode, members: Mapping[str, Member], named: Mapping[str, AbstractSet[str]]
) -> AbstractSet[str]:
    """The values of the members that a filter selects. ``named``: name → the members that have it."""
    return _selected(node, members.keys(), members, named)


def _selected(
    node: FilterNode, among: AbstractSet[str], members: Mapping[str, Member], named: Mapping[str, AbstractSet[str]]
) -> AbstractSet[str]:
    if isinstance(node, LogicalExpr) and node.op == LogicalOperator.and_:
        # The members that a term names are few, so what the other terms select is looked for among them.
        for term in sorted(node.terms, key=is_by_name, reverse=True):
            among = _selected(term, among, members, named)
        return among
    if isinstance(node, LogicalExpr):
        return set().union(*(_selected(term, among, members, named) for term in node.terms))
    if isinstance(node, Not):
        return among - _selected(node.expr, among, members, named)
    if isinstance(node, Comparison) and _is_name(node):
        return named[node.value] & among
    assert isinstance(node, Comparison | Present)  # noqa: S101 - the filter was checked
    field = _FIELDS[str(node.attr_path).lower()]
    if isinstance(node, Present):
        return {value for value in among if members[value][field]}
    test, literal = _TESTS[node.op], node.value if field == 0 else node.value.casefold()
    texts = ((value, members[value][field]) for value in among)
    if field == 0:
        return {value for value, text in texts if test(text, literal)}
    # A member that does not exist yet may be of any type.
    return {value for value, text in texts if test(text.casefold(), literal) or (field == 1 and not text)}


def _leaves(node: FilterNode) -> Iterator[FilterNode]:
    inner: Iterable[FilterNode] = (
        node.terms if isinstance(node, LogicalExpr) else [node.expr] if isinstance(node, Not) else ()
    )
    if not inner:
        yield node
    for one in inner:
        yield from _leaves(one)


def _is_name(node: FilterNode) -> bool:
    return isinstance(node, Comparison) and node.op == CompareOperator.eq and str(node.attr_path).lower() == "value"


def _is_text(value: object) -> bool:
    """Whether a literal is a text that a database can store."""
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= one <= "\udfff" for one in value)
