"""A loader that records which branches of templates were rendered."""

from collections.abc import Callable, MutableMapping
from types import CodeType
from typing import Any

from jinja2 import BaseLoader, Environment, Template, nodes


class TracingLoader(BaseLoader):
    """Loads what ``loader`` loads, and records each branch of a template when it is rendered.

    Branches are the sides of every condition that render something, the bodies of loops, and macros. They are named by
    template, line and the number of the branch within the template.
    """

    def __init__(self, loader: BaseLoader, compiled: dict[str, CodeType]) -> None:
        """``compiled``: template → what it was compiled to, for all environments of one sort."""
        self.loader = loader
        self.compiled = compiled
        self.branches: set[str] = set()
        self.rendered: set[str] = set()

    def list_templates(self) -> list[str]:
        return self.loader.list_templates()

    def load(
        self,
        environment: Environment,
        name: str,
        globals: MutableMapping[str, Any] | None = None,  # noqa: A002
    ) -> Template:
        environment.extend(note_branch=self._note)
        if name not in self.compiled:
            self.compiled[name] = self._compile(environment, name)
        return environment.template_class.from_code(environment, self.compiled[name], environment.make_globals(globals))

    def _compile(self, environment: Environment, name: str) -> CodeType:
        source, _, _ = self.loader.get_source(environment, name)
        tree = environment.parse(source, name)
        number = 0

        def mark(node: nodes.Node, what: str) -> nodes.Const:
            nonlocal number
            number += 1
            self.branches.add(branch := f"{name}:{node.lineno} {what} ({number})")
            return nodes.Const(branch, lineno=node.lineno)

        def seen(node: nodes.Node, what: str, *value: nodes.Expr) -> nodes.Expr:
            here = nodes.EnvironmentAttribute("note_branch", lineno=node.lineno)
            return nodes.Call(here, [mark(node, what), *value], [], None, None, lineno=node.lineno)

        def statement(node: nodes.Node, what: str) -> nodes.Node:
            return nodes.ExprStmt(seen(node, what), lineno=node.lineno)

        tree.body.insert(0, statement(tree, "template"))
        for condition in list(tree.find_all(nodes.If)):
            condition.body.insert(0, statement(condition, "if"))
            if condition.else_:
                condition.else_.insert(0, statement(condition, "else"))
        for loop in list(tree.find_all(nodes.For)):
            loop.body.insert(0, statement(loop, "for"))
            if loop.else_:
                loop.else_.insert(0, statement(loop, "for else"))
        for macro in list(tree.find_all(nodes.Macro)):
            macro.body.insert(0, statement(macro, f"macro {macro.name}"))
        for choice in list(tree.find_all(nodes.CondExpr)):
            choice.expr1 = seen(choice, "then", choice.expr1)
            if choice.expr2 is not None:
                choice.expr2 = seen(choice, "otherwise", choice.expr2)
        return environment.compile(tree, name, name)

    def _note(self, branch: str, value: object = None) -> object:
        self.rendered.add(branch)
        return value


def traced(make: Callable[..., Environment], loaders: list[TracingLoader]) -> Callable[..., Environment]:
    """Makes environments as ``make`` does, with a tracing loader that is added to ``loaders``."""
    compiled: dict[str, CodeType] = {}

    def made(*arguments: Any, **further: Any) -> Environment:
        environment = make(*arguments, **further)
        assert environment.loader is not None
        environment.loader = TracingLoader(environment.loader, compiled)
        loaders.append(environment.loader)
        return environment

    return made
