"""What code a template becomes: its tree checked, loops that count their steps, operations that pass the sandbox."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NoReturn

from jinja2 import Environment, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.parser import Parser

from gristmill.tokenizer.interface import TemplateError

MAX_NODES: Final = 6000
MAX_DEPTH: Final = 100
TICK: Final = "tick "
"""The filter that counts a step; the space keeps templates from naming it."""

_NODES = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Macro, nodes.CallBlock,
    nodes.FilterBlock, nodes.With, nodes.Assign, nodes.AssignBlock, nodes.Break, nodes.Continue, nodes.Scope,
    nodes.Name, nodes.NSRef, nodes.Const, nodes.Tuple, nodes.List, nodes.Dict, nodes.Pair, nodes.Keyword,
    nodes.CondExpr, nodes.Filter, nodes.Test, nodes.Call, nodes.Getitem, nodes.Getattr, nodes.Slice, nodes.Concat,
    nodes.Compare, nodes.Operand, nodes.BinExpr, nodes.UnaryExpr,
)  # fmt: skip


class Generation(Extension):
    """`{% generation %}`, which marks for training what the model said, is a scope and nothing else."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class Generator(CodeGenerator):
    """Writes code in which text keeps its origin, and the operations that Jinja leaves alone pass the environment."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        raise nodes.Impossible  # nothing is computed before there is a budget

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        self.write("environment.text_of(")

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        self.write(")")

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:  # noqa: N802
        if isinstance(node.value, str):
            self.write(f"environment.literal({node.value!r})")
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:  # noqa: N802
        self.write(f"environment.literal({node.data!r})")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self._visit_all("environment.concat((", node.nodes, "))", frame)

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        names = tuple(operand.op for operand in node.ops)
        expressions = [node.expr, *(operand.expr for operand in node.ops)]
        self._visit_all(f"environment.compare_chain({names!r}, (", expressions, "))", frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        if node.ctx == "load":
            self._visit_all("environment.made((", node.items, "))", frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        self._visit_all("environment.made([", node.items, "])", frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        keys_and_values = [part for pair in node.items for part in (pair.key, pair.value)]
        self._visit_all("environment.make_dict((", keys_and_values, "))", frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        bounds = [node.arg.start, node.arg.stop, node.arg.step]
        none = nodes.Const(None)
        self._visit_all("environment.cut(", [node.node, *(bound or none for bound in bounds)], ")", frame)

    def _visit_all(self, head: str, expressions: Iterable[nodes.Node], tail: str, frame: Frame) -> None:
        self.write(head)
        for expression in expressions:
            self.visit(expression, frame)
            self.write(", ")
        self.write(tail)


def check_tree(tree: nodes.Template) -> None:
    """The tree is of known nodes, not too many nor too deep, and asks for nothing internal."""
    todo: list[tuple[nodes.Node, int]] = [(tree, 0)]
    n_nodes = 0
    while todo:
        node, depth = todo.pop()
        n_nodes += 1
        if n_nodes > MAX_NODES or depth > MAX_DEPTH:
            raise TemplateError(f"line {node.lineno}: more than {MAX_NODES} nodes or nested deeper than {MAX_DEPTH}")
        _check_node(node)
        todo += [(child, depth + 1) for child in node.iter_child_nodes()]


def _check_node(node: nodes.Node) -> None:
    def refuse(what: str) -> NoReturn:
        raise TemplateError(f"line {node.lineno}: {what}; chat templates may not")

    if not isinstance(node, _NODES):
        refuse(f"uses {type(node).__name__.lower()}")
    if isinstance(node, nodes.Getattr | nodes.NSRef) and node.attr.startswith("_"):
        refuse(f"asks for the attribute {node.attr!r:.40}")
    if isinstance(node, nodes.For) and node.recursive:
        refuse("has a recursive loop")
    if isinstance(node, nodes.Call | nodes.Filter | nodes.Test) and (node.dyn_args or node.dyn_kwargs):
        refuse("passes * or ** arguments")
    if isinstance(node, nodes.Const) and isinstance(node.value, int) and node.value.bit_length() > 64:
        refuse("holds an integer of more than 64 bits")
    if isinstance(node, nodes.Dict) and len(node.items) > 1000:
        refuse("holds a dict of more than 1000 entries")


def insert_ticks(tree: nodes.Template, environment: Environment) -> None:
    """Have each turn of each loop, and each test of a loop's filter, pass by the filter TICK."""
    for loop in list(tree.find_all(nodes.For)):
        tick = nodes.Filter(nodes.Const(None), TICK, [], [], None, None, lineno=loop.lineno)
        tick.set_environment(environment)
        loop.body.insert(0, nodes.ExprStmt(tick, lineno=loop.lineno))
        if loop.test is not None:
            loop.test = nodes.And(tick, loop.test, lineno=loop.lineno)
