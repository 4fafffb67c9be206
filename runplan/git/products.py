"""A program that keeps the products of run.setup as run.setup left them: the untracked files of the worktree.

    git ls-tree -rz --name-only COMMIT | python products.py tidy|list|compare|check LISTING [NAME…]

It runs in the sandbox, by its path and in the worktree, so it imports nothing of runplan; and often, so it imports
little: pathlib alone takes longer than the rest. `tidy` deletes pipes next to
tracked files, and tracked files with odd modes or further links: git writes them again. `list` notes the products in
LISTING. `compare` deletes every file that is neither tracked nor listed, and fails when a listed one has changed or is
gone; `check` only fails. NAME is a file that the caller writes itself.
"""

from __future__ import annotations

import os
import stat
import sys

MODES = (0o644, 0o755)  #: of tracked files
DIRECTORY = b"directory"


def main(how: str, listing: str, *names: str) -> str:
    """What went wrong, or ""."""
    if not (files := sys.stdin.buffer.read()):
        return "git lists no file"
    tracked = {*files.split(b"\0"), b".git", *map(os.fsencode, names)}
    if how == "check":
        listed = read_listing(listing)
        products = {path: describe(os.lstat(path)) for path in listed if os.path.lexists(path)}
        return name_changed(listed, products, tracked)
    products = find_products(tracked, is_deep=how != "tidy")
    if how == "list":
        with open(listing, "wb") as file:
            file.write(b"\0".join(word for pair in products.items() for word in pair))
    if how != "compare":
        return ""
    listed = read_listing(listing)
    for path in sorted(products.keys() - listed.keys(), reverse=True):  # the content of a directory before it
        (os.rmdir if products[path] == DIRECTORY else os.unlink)(path)
    return name_changed(listed, products, tracked)


def list_parents(paths: set[bytes]) -> set[bytes]:
    parents: set[bytes] = set()
    for path in paths:
        while (path := path.rpartition(b"/")[0]) and path not in parents:
            parents.add(path)
    return parents


def read_listing(listing: str) -> dict[bytes, bytes]:
    with open(listing, "rb") as file:
        words = file.read().split(b"\0")
    return dict(zip(words[::2], words[1::2], strict=False))


def name_changed(listed: dict[bytes, bytes], products: dict[bytes, bytes], tracked: set[bytes]) -> str:
    differing = (path for path, facts in listed.items() if path not in tracked and products.get(path) != facts)
    path = next(differing, None)
    return "" if path is None else f"a product changed: {os.fsdecode(path)}"


def describe(status: os.stat_result) -> bytes:
    """The facts of a path; no two states of a file have the same."""
    facts = (status.st_mode, status.st_ino, status.st_size, status.st_ctime_ns)
    return DIRECTORY if stat.S_ISDIR(status.st_mode) else " ".join(map(str, facts)).encode()


def find_products(tracked: set[bytes], *, is_deep: bool) -> dict[bytes, bytes]:
    """The facts of each path that git does not track.

    Directories without tracked files are looked at only if `is_deep`.
    """
    parents = list_parents(tracked)
    products: dict[bytes, bytes] = {}
    folders = [b""]
    while folders:
        folder = folders.pop()
        for entry in os.scandir(folder or b"."):
            path, status = folder + entry.name, entry.stat(follow_symlinks=False)
            kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
            if kind == stat.S_IFDIR:
                if is_deep or path in parents:
                    folders.append(path + b"/")
                if path in tracked:  # a submodule, whose .git is written before each agent
                    tracked.add(path + b"/.git")
                if path not in parents:
                    products[path] = DIRECTORY
                elif mode != 0o755:
                    os.chmod(path, 0o755)  # noqa: S103 - git makes such directories
            elif kind not in (stat.S_IFREG, stat.S_IFLNK):
                os.unlink(path)
            elif path not in tracked:
                products[path] = describe(status)
            elif kind == stat.S_IFREG and not is_deep and (status.st_nlink > 1 or mode not in MODES):
                os.unlink(path)
    return products


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or 0)
