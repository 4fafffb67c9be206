"""The standard library's dataclass and NamedTuple in the shapes this house uses, without what makes them dear.

`dataclasses.dataclass` writes and compiles six functions for every class; with a hundred and fifty classes that was
a third of the time until the first agent ran. Here all frozen, slotted, keyword-only classes share their functions.
`typing.NamedTuple` compiles every annotation, which nobody ever asks a tuple for, and a constructor for every class.
To the type checker these are the standard ones, and `fields`, `replace` and `asdict` work on what is made here.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass
    from typing import NamedTuple as NamedTuple
else:

    class _Tupled(type):
        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            names = tuple(body.get("__annotations__", ()))
            defaults = {field: body[field] for field in names if field in body}
            assert len(names) <= len(_AT)
            own = {"__slots__": (), "__match_args__": names, "_fields": names, "_defaults": defaults}
            return type(name, (_Tuple,), body | dict(zip(names, _AT, strict=False)) | own)

    class NamedTuple(metaclass=_Tupled):
        """As `typing.NamedTuple`."""

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool) -> Callable[[type], type]:
        """As `dataclasses.dataclass`, for classes without bases of their own, factories or `__post_init__`."""
        assert frozen
        assert slots
        assert kw_only
        return _made


class _Tuple(tuple[Any, ...]):
    """What all named tuples have in common."""

    __slots__ = ()
    _fields: tuple[str, ...]
    _defaults: dict[str, Any]

    def __new__(cls, *values: Any, **given: Any) -> Any:
        if tuple(given) == cls._fields and not values:  # as most are made: all of them, in their order
            return tuple.__new__(cls, given.values())
        first = dict(zip(cls._fields, values, strict=False))
        whole = cls._defaults | first | given
        if len(values) > len(first) or first.keys() & given.keys() or whole.keys() != set(cls._fields):
            raise TypeError(f"{cls.__name__}() takes {', '.join(cls._fields)}")
        return tuple.__new__(cls, [whole[name] for name in cls._fields])

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **given: Any) -> Any:
        return type(self)(**self._asdict() | given)


#: What is at each place of a tuple; none of ours is longer.
_AT = tuple(property(itemgetter(place)) for place in range(20))

_REQUIRED: Any = object()


def _made(plain: type) -> type:
    names = tuple(plain.__annotations__)
    defaults = {name: plain.__dict__.get(name, _REQUIRED) for name in names}
    body = {key: value for key, value in plain.__dict__.items() if key not in (*names, "__dict__", "__weakref__")}
    made = type(plain)(plain.__name__, plain.__bases__, body | _SHARED | {"__slots__": names})
    # Frozen to everybody else: only the slots' own descriptors can still write.
    places = tuple((name, getattr(made, name).__set__, default) for name, default in defaults.items())
    type.__setattr__(made, "_places", places)
    return made


class _Fields:
    """What the standard library asks a dataclass for; made when it does, since it takes a dear import."""

    def __get__(self, one: object, kind: Any) -> dict[str, Any]:
        import dataclasses

        found: dict[str, Any] = {}
        for name, _, default in kind._places:  # noqa: SLF001 - ours
            given = dataclasses.MISSING if default is _REQUIRED else default
            field: Any = dataclasses.field(default=given, kw_only=True)
            field.name, field.type = name, kind.__annotations__[name]
            field._field_type = vars(dataclasses)["_FIELD"]  # noqa: SLF001 - an ordinary one; there is no public way
            found[name] = field
        type.__setattr__(kind, "__dataclass_fields__", found)
        return found


def _init(self: Any, **given: Any) -> None:
    for name, put, default in self._places:
        value = given.pop(name, default)
        if value is _REQUIRED:
            raise TypeError(f"{type(self).__name__}() needs {name}")
        put(self, value)
    if given:
        raise TypeError(f"{type(self).__name__}() has no {', '.join(given)}")


def _content(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__slots__])


def _eq(self: Any, other: object) -> Any:
    return _content(self) == _content(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_content(self))


def _repr(self: Any) -> str:
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__qualname__}({inside})"


def _setattr(self: Any, name: str, _value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r} of {type(self).__name__}")


def _delattr(self: Any, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r} of {type(self).__name__}")


_SHARED: dict[str, Any] = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__match_args__": (),
    "__dataclass_fields__": _Fields(),
}
