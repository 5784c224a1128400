"""Selects members of a group by the filter in a path, as in ``members[value eq "x" and type eq "User"]``.

A *name* is the text in ``value eq "…"``: the id of a member, or another name by which the directory refers to it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple

from scim2_models import InvalidFilterException
from scim2_models.path import AttrPath, CompareOperator, Comparison, FilterNode, LogicalExpr, Not, Present
from scim2_models.path.expressions import LogicalOperator


class ScimMember(NamedTuple):
    value: str
    """The id of its resource, or a name of one that does not exist yet."""
    type: str
    """``User`` or ``Group``. Empty if it is not known."""
    display: str


_VALUE = AttrPath("value")
_TESTS: Mapping[CompareOperator, Callable[[str, str], bool]] = {
    CompareOperator.eq: str.__eq__,
    CompareOperator.ne: str.__ne__,
    CompareOperator.co: str.__contains__,
    CompareOperator.sw: str.startswith,
    CompareOperator.ew: str.endswith,
}


def name_filter(name: str) -> FilterNode:
    return Comparison(_VALUE, CompareOperator.eq, name)


def check_filter(node: FilterNode) -> None:
    """Raises ``InvalidFilterException`` for a filter that cannot be applied to members."""
    for leaf in _leaves(node):
        if not isinstance(leaf, Comparison | Present) or str(leaf.attr_path).lower() not in ScimMember._fields:
            raise InvalidFilterException(detail="members are selected by value, type and display alone")
        if isinstance(leaf, Comparison) and (leaf.op not in _TESTS or not _is_text(leaf.value)):
            raise InvalidFilterException(detail="members are compared by eq, ne, co, sw and ew with a text")


def count_comparisons(node: FilterNode) -> int:
    """The number of comparisons with each member of the group. 0 if the filter names its members."""
    return 0 if is_by_name(node) else sum(1 for _ in _leaves(node))


def is_by_name(node: FilterNode) -> bool:
    """Whether a filter can only select members that it names."""
    if isinstance(node, LogicalExpr):
        return (any if node.op == LogicalOperator.and_ else all)(map(is_by_name, node.terms))
    return _is_name(node)


def names_in(node: FilterNode) -> Iterator[str]:
    return (leaf.value for leaf in _leaves(node) if isinstance(leaf, Comparison) and _is_name(leaf))


def select_members(
    node: FilterNode,
    values: AbstractSet[str],
    members: Mapping[str, ScimMember],
    by_name: Mapping[str, AbstractSet[str]],
    *,
    unknown_type: bool = True,
) -> AbstractSet[str]:
    """The values of the members that a filter selects, among ``values``. ``members``: value → the member. ``by_name``:
    name → the values of the members that have it.

    A member that does not exist yet may be of any type, so every comparison with a type selects it, also a negated one.
    ``unknown_type``: whether a comparison selects it here.
    """
    select = partial(select_members, members=members, by_name=by_name, unknown_type=unknown_type)
    if isinstance(node, LogicalExpr) and node.op == LogicalOperator.and_:
        # The members that a term names are few, so the other terms are applied to them alone.
        for term in sorted(node.terms, key=is_by_name, reverse=True):
            values = select(term, values)
        return values
    if isinstance(node, LogicalExpr):
        return set().union(*(select(term, values) for term in node.terms))
    if isinstance(node, Not):
        return values - select(node.expr, values, unknown_type=not unknown_type)
    if isinstance(node, Comparison) and _is_name(node):
        return by_name[node.value] & values
    assert isinstance(node, Comparison | Present)  # noqa: S101 - the filter was checked
    field = str(node.attr_path).lower()
    if field == "value" and isinstance(node, Comparison):
        return {value for value in values if _TESTS[node.op](value, node.value)}
    texts = {value: str(getattr(members[value], field)) for value in values}
    if isinstance(node, Present):
        return {value for value, text in texts.items() if text}
    test, literal = _TESTS[node.op], node.value.casefold()
    return {
        value
        for value, text in texts.items()
        if (unknown_type if field == "type" and not text else test(text.casefold(), literal))
    }


def _leaves(node: FilterNode) -> Iterator[FilterNode]:
    inner: Iterable[FilterNode] = (
        node.terms if isinstance(node, LogicalExpr) else [node.expr] if isinstance(node, Not) else ()
    )
    if not inner:
        yield node
    for term in inner:
        yield from _leaves(term)


def _is_name(node: FilterNode) -> bool:
    return isinstance(node, Comparison) and node.op == CompareOperator.eq and str(node.attr_path).lower() == "value"


def _is_text(value: object) -> bool:
    """Whether a literal is a text that a database can store."""
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)
