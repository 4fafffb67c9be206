"""`make mutants`: change the code at random places, one at a time, and list the changes that no test notices.

All of it happens in copies of the tree. The tests of a mutant are those that call the changed function, the quickest
first (`calls.py`).
"""

import argparse
import ast
import copy
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.calls import MODULE, ROOT, Tests, load_tests

MUTATED = ("domain/run", "domain/checks", "engine/loop", "engine/landing", "hosts")  #: folders of the package
TESTED = ("tests/unit", "tests/contract", "tests/model", "tests/integration", "tests/forge", "tests/e2e")
NOT_TESTED = ("test_docs.py", "test_make.py")  #: they take long, and test no code
BUDGET_S = 20.0  #: of processors, for the quick tests of one mutant as they were measured, and again for the others
LIMIT_S = 400.0  #: after which a mutant counts as killed: on a machine that does nothing else, its tests end earlier
BAR = 95.0  #: percent
NO_TESTS = (4, 5)  #: exit codes of pytest for unknown names of tests, and for none
LARGE = 100  #: such numbers are limits of sizes, in which one more or less makes no difference

_PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)),
    *((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv)),
)
SWAPPED = {old: new for one, other in _PAIRS for old, new in ((one, other), (other, one))}
SWAPPED_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: Fields of nodes in which no mutant is made: types, messages, and what only a defect would show.
LEFT_ALONE = {"annotation", "returns", "decorator_list", "exc", "msg", "format_spec", "type_params", "bases"}


@dataclass(frozen=True)
class Mutant:
    path: str  #: below the root
    function: str  #: its qualified name, or `<module>`
    line: int
    before: str  #: the statement
    after: str
    source: str  #: of the whole changed module

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}\n    - {self.before}\n    + {self.after}"


@dataclass(frozen=True)
class Site:
    """A place in a tree, and a node to put there."""

    holder: Any  #: a node, or a list in a node
    key: Any  #: its field, or its index
    new: ast.AST
    function: str
    statement: ast.AST  #: around the place, or there
    is_statement: bool  #: there

    def apply(self) -> None:
        if isinstance(self.holder, list):
            self.holder[self.key] = self.new
        else:
            setattr(self.holder, self.key, self.new)


# --- the mutants of a module ------------------------------------------------------------------------------


def replacements(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            yield _changed(node, ops=[SWAPPED[type(op)]()])
        case ast.BoolOp(op=op, values=values):
            yield _changed(node, op=SWAPPED[type(op)]())
            yield values[0]
            yield values[-1]
        case ast.BinOp(op=op) if type(op) in SWAPPED:
            yield _changed(node, op=SWAPPED[type(op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.IfExp(body=body, orelse=orelse):
            yield body
            yield orelse
        case ast.Constant(value=bool(value)):
            yield ast.Constant(value=not value)
        case ast.Constant(value=int(value)) if value < LARGE:
            yield ast.Constant(value=value + 1)
        case ast.Name(id=name, ctx=ast.Load()) if name in SWAPPED_NAMES:
            yield ast.Name(id=SWAPPED_NAMES[name], ctx=ast.Load())
        case ast.comprehension(ifs=[_, *_]):
            yield _changed(node, ifs=[])
        case ast.match_case(guard=ast.expr()):
            yield _changed(node, guard=None)
        case ast.If(test=test) | ast.While(test=test):
            yield _changed(node, test=ast.UnaryOp(op=ast.Not(), operand=test))
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) | ast.Raise() | ast.AugAssign():
            yield ast.Pass()
        case ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Return(value=ast.Call() | ast.Name() | ast.Tuple() | ast.List()):
            yield _changed(node, value=ast.Constant(value=None))


def _changed(node: ast.AST, **fields: Any) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def list_sites(node: ast.AST, function: str = MODULE, statement: ast.AST | None = None) -> Iterator[Site]:
    """Every place of the tree that can be changed, in the order of its source."""
    match node:
        case ast.FunctionDef(name=name):
            function = name if function == MODULE else f"{function}.{name}"
        case ast.ClassDef(name=name):
            function = f"{MODULE}{name}"
    for field, value in ast.iter_fields(node):
        if field in LEFT_ALONE or (isinstance(node, ast.ClassDef) and field == "keywords"):
            continue
        children = value if isinstance(value, list) else [value]
        for place, child in enumerate(children):
            if isinstance(child, ast.AST) and not _is_left_alone(child):
                holder, key = (value, place) if isinstance(value, list) else (node, field)
                is_whole = isinstance(child, ast.stmt | ast.match_case)
                around = child if is_whole else statement or child
                yield from (Site(holder, key, new, function, around, is_whole) for new in replacements(child))
                yield from list_sites(child, function, around)


def _is_left_alone(node: ast.AST) -> bool:
    """Code for the type checker, limits of time and size, lines of a log, and what only a defect reaches."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Assert() | ast.keyword(arg="strict"):
            return True
        case (
            ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))) | ast.Raise(exc=ast.Name("NotImplementedError"))
        ):
            return True  # for the type checker, and a method that each subclass has
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name("log") | ast.Attribute(attr="log" | "_log")))):
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name.endswith("_S") or (name.isupper() and isinstance(value, ast.BinOp))
    return False


def make_mutant(path: Path, number: int) -> Mutant:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    site = next(itertools.islice(list_sites(tree), number, None))
    before = ast.unparse(site.statement)
    site.apply()
    after = ast.unparse(site.new if site.is_statement else site.statement)
    before, after = (_shorten(before, after), _shorten(after, before))
    line = getattr(getattr(site.statement, "pattern", site.statement), "lineno", 0)
    function = site.function.removeprefix(MODULE)
    return Mutant(str(path.relative_to(ROOT)), function, line, before, after, ast.unparse(tree))


def _shorten(text: str, other: str) -> str:
    """The lines of a statement that the other one lacks."""
    others = other.splitlines()
    return " ⏎ ".join([line.strip() for line in text.splitlines() if line not in others][:3])


def tests_of(mutant: Mutant, tests: Tests) -> list[str]:
    """Those that call the function, else one of its module, else one of a module that imports it.

    As many quick ones as the time allows, one at least, where there is one; then as many again from as many files as
    possible: tests through the command line see what tests of single functions do not. The walks and nights of the
    model are always among them.
    """
    path = mutant.path.removeprefix("runplan/")
    rows = tests.get(f"{path}:{mutant.function}") or tests.get(f"{path}:{MODULE}") or []
    if not rows:
        name = path.removesuffix(".py").replace("/", ".")
        importers = [file for file in (ROOT / "runplan").rglob("*.py") if name in file.read_text(encoding="utf-8")]
        keys = [f"{file.relative_to(ROOT / 'runplan')}:{MODULE}" for file in importers]
        rows = sorted({row for key in keys for row in tests.get(key, [])})
    quick = _within_budget(rows)
    model = [test for _, test in rows if test.startswith("tests/model/")]
    others = [(took_s, test) for took_s, test in rows if test not in {*quick, *model}]
    return [*dict.fromkeys([*quick, *model]), *_within_budget(_spread_over_files(others))]


def _within_budget(rows: Sequence[tuple[float, str]]) -> list[str]:
    """The first ones that take no longer together; one at least, where there is one."""
    spent = itertools.accumulate(took_s for took_s, _ in rows)
    return [
        test
        for place, ((_, test), so_far) in enumerate(zip(rows, spent, strict=True))
        if not place or so_far < BUDGET_S
    ]


def _spread_over_files(rows: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """The first one of each file, then the second of each, and so on."""
    by_file: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for took_s, test in rows:
        by_file[test.partition("::")[0]].append((took_s, test))
    rounds = itertools.zip_longest(*by_file.values())
    return [row for each in rounds for row in each if row]


# --- trying them ------------------------------------------------------------------------------------------


def copy_tree(place: Path) -> Path:
    """A copy of the sources, with an environment whose `runplan` is the copy."""
    tree = place / "tree"
    left_out = shutil.ignore_patterns(".git", ".venv*", ".agents", ".mypy_cache", ".hypothesis", "histories")
    shutil.copytree(ROOT, tree, symlinks=True, ignore=left_out)
    (tree / "tests/histories").symlink_to(ROOT / "tests/histories")
    own = Path(sys.prefix)
    packages = Path(sysconfig.get_path("purelib"))
    copied = tree / ".venv" / packages.relative_to(own)
    copied.mkdir(parents=True)
    for entry in packages.iterdir():
        if "runplan" not in entry.name or entry.is_dir():
            (copied / entry.name).symlink_to(entry)
    (copied / "runplan.pth").write_text(f"{tree}\n")
    shutil.copy(own / "pyvenv.cfg", tree / ".venv")
    (tree / ".venv/bin").mkdir()
    for entry in (own / "bin").iterdir():
        (tree / ".venv/bin" / entry.name).symlink_to(entry.resolve() if "python" in entry.name else entry)
    script = tree / ".venv/bin/runplan"
    text = script.read_text(encoding="utf-8").replace(str(own), str(tree / ".venv"))
    script.unlink()
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)
    return tree


def try_mutant(mutant: Mutant, tests: list[str], tree: Path, number: int) -> str:
    """`survived`, `killed` by a test that fails, or `not ended` in time, with the mutant in this copy of the tree."""
    changed = tree / mutant.path
    original = (changed.read_bytes(), changed.stat().st_mtime_ns)
    names = tree / "mutant-tests"
    names.write_text("\n".join(tests), encoding="utf-8")
    words = ["-m", "pytest", "-q", "-x", "--timeout", "100", "-p", "no:cacheprovider", "-p", "no:xdist", f"@{names}"]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    changed.write_text(mutant.source, encoding="utf-8")
    os.utime(changed, (number, number))  # never the moment of a compiled file
    out = subprocess.DEVNULL
    program = tree / ".venv/bin/python"
    run = subprocess.Popen([program, *words], cwd=tree, env=env, stdout=out, stderr=out, process_group=0)
    try:
        code = run.wait(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        return "not ended"
    finally:
        changed.write_bytes(original[0])
        os.utime(changed, ns=(original[1], original[1]))
    is_unsure = code in NO_TESTS  # the tests are unknown, or the mutant cannot be imported
    if (
        is_unsure
        and subprocess.run([program, *words, "--collect-only"], cwd=tree, env=env, stdout=out, stderr=out).returncode
    ):
        raise RuntimeError(f"pytest ended with {code}: tests have changed since they were measured; play it again")
    return "killed" if code else "survived"


def choose_mutants(seed: int, count: int, only: str) -> list[Mutant]:
    files = [file for folder in MUTATED for file in sorted((ROOT / "runplan" / folder).rglob("*.py"))]
    files = [file for file in files if only in str(file)]
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    sites = [(file, number) for file, tree in trees.items() for number, _ in enumerate(list_sites(tree))]
    chosen = random.Random(seed).sample(sites, min(count, len(sites)))
    return [make_mutant(*site) for site in chosen]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", default="", help="part of the paths of the modules to change")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    tested = (file for folder in TESTED for file in sorted((ROOT / folder).glob("test_*.py")))
    tests = load_tests([file for file in tested if file.name not in NOT_TESTED])
    waiting = list(enumerate(choose_mutants(args.seed, args.count, args.only)))
    count = len(waiting)
    ends: Counter[str] = Counter()

    def work(place: Path) -> None:
        tree = copy_tree(place)
        while waiting:
            number, mutant = waiting.pop()
            named = tests_of(mutant, tests)
            end = try_mutant(mutant, named, tree, number) if named else "survived"
            ends[end] += 1
            if end != "killed":
                sys.stdout.write(f"{mutant}\n    {end}: {len(named)} tests\n")
                sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="runplan-mutants-") as place, ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(work, [Path(place) / str(job) for job in range(args.jobs)]))
    killed = count - ends["survived"]
    share = 100 * killed / max(1, count)
    ended = f", {ends['not ended']} of them by the limit of time" if ends["not ended"] else ""
    sys.stdout.write(f"{killed} of {count} mutants killed ({share:.1f} %){ended}; SEED={args.seed} COUNT={count}\n")
    return share < BAR


if __name__ == "__main__":
    sys.exit(main())
