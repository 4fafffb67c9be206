"""Empties the functions that a phase added: a test that still passes does not test them."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from itertools import accumulate
from tokenize import detect_encoding
from typing import Any

from msgspec import Struct

LARGEST = 200_000  #: bytes of a file that is parsed
LONGEST = 1_000  #: characters of the names around a function
_GRAMMARS = {
    **dict.fromkeys(("js", "jsx", "mjs", "cjs"), ("tree_sitter_javascript", "language")),
    **dict.fromkeys(("ts", "mts", "cts"), ("tree_sitter_typescript", "language_typescript")),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
}
#: Languages that load an empty file. A compiler refuses it, so a stub would tell nothing.
_STUBBED = ("rb", "php", "pl", "pm", "lua", "sh")
#: Syntax of JavaScript that has a name.
_FUNCTION = r"(generator_)?function(_declaration|_expression)?|arrow_function|method_definition"
_VALUE = r"variable_declarator|assignment_expression|pair|enum_declaration|(public_)?field_definition"
_CLASS = r"(abstract_)?class(_declaration)?"


class Emptied(Struct, frozen=True, kw_only=True):
    content: bytes
    words: frozenset[str]  #: a test that has none of these words does not reach what was emptied


class _Definition(Struct, frozen=True):
    """A function with the place of its body, in bytes; or a constant, a field or an enumeration, without one."""

    name: str  #: with those of the classes around it
    start: int = 0
    end: int = 0


def empty_added_functions(path: str, old: bytes | None, new: bytes) -> Emptied | None:
    """The file with each function emptied that `old` lacks; None where there is none, or where that is not known."""
    suffix = path.rpartition(".")[2]
    module = re.sub(r"(/(__init__|index))?\.\w+$", "", path).rpartition("/")[2]
    if suffix not in ("py", *_GRAMMARS, *_STUBBED) or max(len(new), len(old or b"")) > LARGEST:
        return None
    try:
        encoding, _ = detect_encoding(BytesIO(new).readline) if suffix == "py" else ("utf-8", [])
        code = new.decode(encoding).encode()
        definitions = _list_definitions(suffix, code)
        known = {function.name for function in _list_definitions(suffix, old or b"")}
    except (SyntaxError, ValueError, RecursionError, MemoryError, ImportError):
        return Emptied(content=b"", words=frozenset({module})) if old is None else None
    added = [function for function in definitions if function.end and function.name not in known]
    body = b"raise NotImplementedError" if suffix == "py" else b'{ throw new Error("not implemented"); }'
    added.sort(key=lambda function: function.start)
    starts = [0, *(function.end for function in added)]
    ends = [*(function.start for function in added), len(code)]
    content = body.join(code[start:end] for start, end in zip(starts, ends, strict=True)).decode().encode(encoding)
    # The name of a class or module alone does not count: a test may be about a constant or a type there.
    names = (function.name.rpartition(".")[2] for function in added)
    words = frozenset(module if name == "default" else name for name in names)
    return Emptied(content=content, words=words) if added else None


def _list_definitions(suffix: str, code: bytes) -> list[_Definition]:
    """The definitions of a module; a function that does nothing is none, nor is one inside of another."""
    if suffix == "py":
        starts = [0, *accumulate(map(len, code.splitlines(keepends=True)))]
        return list(_list_python(ast.parse(code.decode()), "", starts))
    grammar, dialect = _GRAMMARS.get(suffix, ("", ""))
    tree_sitter = import_module("tree_sitter")
    language = tree_sitter.Language(getattr(import_module(grammar), dialect)())
    root = tree_sitter.Parser(language).parse(code).root_node
    if root.has_error:
        raise SyntaxError
    definitions = []
    stack: list[tuple[Any, str, str]] = [(root, "", "")]
    while stack:
        node, scope, bound = stack.pop()
        if len(scope) > LONGEST:
            raise SyntaxError
        fields = map(node.child_by_field_name, ("name", "left", "key", "property"))
        label = next(filter(None, fields), None) if re.fullmatch(f"{_FUNCTION}|{_VALUE}|{_CLASS}", node.type) else None
        name = bound or (label.text.decode() if label else "")
        body = node.child_by_field_name("body")
        if re.fullmatch(_FUNCTION, node.type) and name and body:
            if body.type != "statement_block" or any(part.type != "comment" for part in body.named_children):
                definitions.append(_Definition(scope + name, body.start_byte, body.end_byte))
            continue
        value = node.child_by_field_name("value") or node.child_by_field_name("right")
        name = "default" if node.type == "export_statement" and value else name
        form = f"{_FUNCTION}|{_CLASS}|object|identifier"
        is_code = value and (re.fullmatch(form, value.type) or code.startswith(b"require(", value.start_byte))
        if re.fullmatch(_VALUE, node.type) and not is_code:
            definitions.append(_Definition(scope + name))
        for child in node.named_children:
            is_value = bool(name) and child == value
            inner = f"{scope}{name}." if name and not is_value else scope
            stack.append((child, inner, name if is_value else ""))
    return definitions


def _list_python(node: ast.AST, scope: str, starts: list[int]) -> Iterator[_Definition]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef(name=name, body=body) | ast.AsyncFunctionDef(name=name, body=body):
                first = min([body[0].lineno, *(part.lineno for part in getattr(body[0], "decorator_list", ()))])
                end = starts[(body[-1].end_lineno or 1) - 1] + (body[-1].end_col_offset or 0)
                is_stub = all(
                    isinstance(part, ast.Pass)
                    or (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
                    or (isinstance(part, ast.Raise) and ast.unparse(part).startswith("raise NotImplementedError"))
                    for part in body
                )
                if not is_stub:
                    yield _Definition(scope + name, starts[first - 1] + body[0].col_offset, end)
            case ast.ClassDef(name=name):
                yield from _list_python(child, f"{scope}{name}.", starts)
            case ast.Assign() | ast.AnnAssign():
                yield _Definition(scope)
            case ast.stmt() | ast.ExceptHandler() | ast.match_case():
                yield from _list_python(child, scope, starts)
