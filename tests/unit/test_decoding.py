"""Decoding from several threads that are the first to use each type."""

import importlib
import json
import subprocess
import sys
from contextlib import suppress

import msgspec.inspect as mi
from msgspec import Struct

#: The types that the store, the settings and the socket decode.
MODULES = (
    *("domain.run.events", "domain.run.attempt_parts", "domain.run.rows", "domain.run.requests"),
    *("domain.settings.schema", "hosts.daemon.protocol"),
)
PROCESSES = 2  # without the lock all of them die
CHILD = """
import importlib, json, sys, threading
from runplan.domain.decoding import convert
samples = [(getattr(importlib.import_module(module), name), value) for module, name, value in json.load(sys.stdin)]
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(6)

def decode():
    for kind, value in samples:
        barrier.wait()
        convert(value, kind)

threads = [threading.Thread(target=decode) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def example_of(kind: mi.Type) -> object:
    """A value with every field set, so that each type below is used too."""
    match kind:
        case mi.StructType(array_like=True):
            return [example_of(field.type) for field in kind.fields]
        case mi.StructType():
            tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
            return tag | {field.encode_name: example_of(field.type) for field in kind.fields}
        case mi.UnionType():
            return example_of(next(part for part in kind.types if not isinstance(part, mi.NoneType)))
        case mi.VarTupleType() | mi.ListType() | mi.FrozenSetType():
            return [example_of(kind.item_type)]
        case mi.TupleType():
            return [example_of(part) for part in kind.item_types]
        case mi.DictType(key_type=mi.StrType()):
            return {"x": example_of(kind.value_type)}
        case mi.EnumType():
            return next(iter(kind.cls)).value
        case mi.LiteralType():
            return kind.values[0]
        case mi.AnyType() | mi.StrType():
            return "x"
        case mi.BoolType():
            return True
        case mi.IntType() | mi.FloatType():
            return 1
    raise TypeError(kind)


def list_samples() -> list[tuple[str, str, object]]:
    samples = []
    for name in MODULES:
        module = importlib.import_module(f"runplan.{name}")
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, Struct) and kind.__module__ == module.__name__:
                with suppress(NameError, TypeError):  # never decoded: its annotations are for the type checker
                    samples.append((module.__name__, kind.__name__, example_of(mi.type_info(kind))))
    return samples


def test_threads_of_a_fresh_process_decode_every_type_at_once() -> None:
    given = json.dumps(list_samples()).encode()
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(PROCESSES)
    ]
    ends = [(child.communicate(given, timeout=60)[1].decode(), child.returncode) for child in children]
    assert ends == [("", 0)] * PROCESSES
