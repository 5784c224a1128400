"""The generator of ``methods.py`` from the contract's table: ``python -m app.client.generate``.

The methods are written out rather than made at run time, so that editors and type checkers see them.
"""

import types
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Union, get_args, get_origin

from app.contract import operations
from app.contract.base import NoParameters
from app.contract.operation import AnyOperation, Operation

TARGET = Path(__file__).with_name("methods.py")

_LINE_LENGTH = 120

_HEAD = '''\
"""One typed method per operation of the backend.

Generated from the table in ``app/contract/operations.py`` by ``python -m app.client.generate``: change the table, not
this file.
"""

from abc import ABC, abstractmethod
from typing import TypeVar

{imports}

RequestT = TypeVar("RequestT", bound=Request)
ResultT = TypeVar("ResultT")


class OperationMethods(ABC):
    """The methods; whoever inherits from it provides ``call``. ``twin`` uses the path under the other version of the
    API."""

    @abstractmethod
    def call(
        self, operation: Operation[RequestT, ResultT], request: RequestT, *, twin: bool = False
    ) -> Answer[ResultT]:
        """One call of the backend. Raises ``ClientError``."""
'''


class _Imports:
    """Remembers which names the text uses, and from where."""

    def __init__(self) -> None:
        self._names: defaultdict[str, set[str]] = defaultdict(set)

    def name(self, cls: type) -> str:
        """How ``cls`` is written; it is imported for that."""
        if cls.__module__ != "builtins":
            self.add(cls.__module__, cls.__name__)
        return cls.__name__

    def add(self, module: str, name: str) -> None:
        """Has ``name`` imported from ``module``."""
        self._names[module].add(name)

    def lines(self) -> str:
        """The import statements."""
        lines = []
        for module in sorted(self._names):
            names = sorted(self._names[module], key=str.lower)
            line = f"from {module} import {', '.join(names)}"
            if len(line) > _LINE_LENGTH:
                line = f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"
            lines.append(line)
        return "\n".join(lines)


def generate() -> str:
    """The text of ``methods.py``."""
    imports = _Imports()
    constants = {id(value): name for name, value in vars(operations).items() if isinstance(value, Operation)}
    methods = [_method(operation, constants[id(operation)], imports) for operation in operations.OPERATIONS]
    known = [("app.contract", "operations"), ("app.contract.base", "Request"), ("app.contract.envelope", "Answer")]
    for module, name in [*known, ("app.contract.operation", "Operation")]:
        imports.add(module, name)
    return _HEAD.format(imports=imports.lines()) + "".join(f"\n{method}" for method in methods)


def _method(operation: AnyOperation, constant: str, imports: _Imports) -> str:
    parameters = ["self"]
    if operation.request is NoParameters:
        imports.name(NoParameters)
        argument = "NoParameters()"
    else:
        parameters.append(f"request: {imports.name(operation.request)}")
        argument = "request"
    twin = ""
    if operation.has_twin:
        parameters += ["*", "twin: bool = False"]
        twin = ", twin=twin"
    # The adapter has no public name for its type, and its schema no longer knows the class.
    result = _written(operation.result._type, imports)  # noqa: SLF001
    lines = [
        *_signature(operation.name, ", ".join(parameters), result),
        f'        """{operation.title}: {operation.summary[0].lower()}{operation.summary[1:]}"""',
        f"        return self.call(operations.{constant}, {argument}{twin})",
    ]
    return "".join(f"{line}\n" for line in lines)


def _signature(name: str, parameters: str, result: str) -> list[str]:
    line = f"    def {name}({parameters}) -> Answer[{result}]:"
    if len(line) <= _LINE_LENGTH:
        return [line]
    return [f"    def {name}(", f"        {parameters}", f"    ) -> Answer[{result}]:"]


def _written(kind: object, imports: _Imports) -> str:
    """A type as source text."""
    if kind is None or kind is types.NoneType:
        return "None"
    origin = get_origin(kind)
    if origin is Annotated:
        return _written(get_args(kind)[0], imports)
    if origin in {Union, types.UnionType}:
        return " | ".join(_written(one, imports) for one in get_args(kind))
    if isinstance(origin, type):
        return f"{origin.__name__}[{', '.join(_written(one, imports) for one in get_args(kind))}]"
    if isinstance(kind, type):
        return imports.name(kind)
    raise TypeError(f"no way to write the type {kind!r}")


if __name__ == "__main__":
    TARGET.write_text(generate())
