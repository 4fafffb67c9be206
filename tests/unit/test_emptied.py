"""The functions that a phase added are emptied; a test that names none of them is not judged by that."""

import pytest

from runplan.domain.checks.emptied import empty_added_functions

RAISE = "raise NotImplementedError"
THROW = '{ throw new Error("not implemented"); }'


@pytest.mark.parametrize(
    ("new", "emptied", "words"),
    [
        ('def f(a, b=1):\n    """Doc."""\n    return a\n', f"def f(a, b=1):\n    {RAISE}\n", "f"),
        ("def f(): return 1; \n", f"def f(): {RAISE}; \n", "f"),
        ("async def f():\r\n\treturn 1  # é\r\n", f"async def f():\r\n\t{RAISE}  # é\r\n", "f"),
        ("def f():\n    x = 'é'; yield (x +\n  x)\nprint()\n", f"def f():\n    {RAISE}\nprint()\n", "f"),
        ("def f():\n    @g\n    def h(): ...\n    return h\n", f"def f():\n    {RAISE}\n", "f"),
        ("class A:\n  @p\n  def f(self): return 1\n", f"class A:\n  @p\n  def f(self): {RAISE}\n", "f"),
        ("class A:\n  x: int\n  def f(self): return 1\n", f"class A:\n  x: int\n  def f(self): {RAISE}\n", "f"),
        ("try: ...\nexcept E:\n  def f(): return 1\nX = 1\n", f"try: ...\nexcept E:\n  def f(): {RAISE}\nX = 1\n", "f"),
        ("X = 1\nclass E(Enum):\n    A = 1\n", "", ""),
        ("def f(): ...\ndef g():\n    '''Doc.'''\ndef h():\n    raise NotImplementedError('h')\n", "", ""),
        ("\ufeffdef f(): return 1", f"\ufeffdef f(): {RAISE}", "f"),
    ],
)
def test_added_functions_of_python(new: str, emptied: str, words: str) -> None:
    result = empty_added_functions("src/m/__init__.py", None, new.encode())
    assert (result.content.decode(), result.words) == (emptied, frozenset(words.split())) if result else not emptied


@pytest.mark.parametrize(
    ("path", "new", "emptied", "words"),
    [
        ("m.js", "function* f(a) { yield a }", f"function* f(a) {THROW}", "f"),
        ("m.mjs", "export const f = async (a) => a + 1;", f"export const f = async (a) => {THROW};", "f"),
        ("m.cjs", "exports.f = function g() { return 1 }", f"exports.f = function g() {THROW}", "f"),
        ("m/index.js", "let é = 1;\nexport default () => ({});", f"let é = 1;\nexport default () => {THROW};", "m"),
        ("m.js", "module.exports = { A: 1, f() { return 1 } };", f"module.exports = {{ A: 1, f() {THROW} }};", "f"),
        ("m.jsx", "class A { constructor() { g() } }", f"class A {{ constructor() {THROW} }}", "constructor"),
        ("m.js", "class A { x = 1; f = () => 1 }", f"class A {{ x = 1; f = () => {THROW} }}", "f"),
        ("m.ts", "enum E {}\nfunction f<T>(a: T): T { 0 }", f"enum E {{}}\nfunction f<T>(a: T): T {THROW}", "f"),
        ("m.tsx", "export const F = (p: P): X => <b>{p.c}</b>;", f"export const F = (p: P): X => {THROW};", "F"),
        ("m.ts", "interface I { f(): void }\nconst A: I[] = [1].map((a) => a);\nfunction g() {}", "", ""),
    ],
)
def test_added_functions_of_javascript(path: str, new: str, emptied: str, words: str) -> None:
    result = empty_added_functions(f"src/{path}", None, new.encode())
    assert (result.content.decode(), result.words) == (emptied, frozenset(words.split())) if result else not emptied


@pytest.mark.parametrize(
    ("path", "old", "new", "emptied"),
    [
        ("m.py", "def f():\n    return 1\n", "def f():\n    return 2\n", None),
        ("m.py", "class A:\n  def f(s): return 1\n", "def f(): return 1\n", f"def f(): {RAISE}\n"),
        ("m.py", "def f(: broken", "def f(): return 1\n", None),
        ("m.js", "let f = () => 1", "let f = () => 2\nlet g = () => f()", f"let f = () => 2\nlet g = () => {THROW}"),
        ("m.js", "const f = require('f');", "function f() {}\nf = () => 1;", f"function f() {{}}\nf = () => {THROW};"),
        ("m.py", None, "def f(: newer syntax", ""),
        ("m.py", None, "# coding: latin-1\ndef f(): return 'é'\n", f"# coding: latin-1\ndef f(): {RAISE}\n"),
        ("m.js", None, "function (", ""),
        ("m.rb", None, "def f; end", ""),
        ("m.rb", "", "def f; end", None),
        ("m.go", None, "package m", None),
        ("m.json", None, "{}", None),
    ],
)
def test_old_functions_stay_and_an_added_file_without_a_parser_is_a_stub(
    path: str, old: str | None, new: str, emptied: str | None
) -> None:
    result = empty_added_functions(path, None if old is None else old.encode("latin-1"), new.encode("latin-1"))
    assert (result and result.content.decode()) == emptied
