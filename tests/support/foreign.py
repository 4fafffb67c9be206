"""Reads with GitPython what runplan wrote: foreign code parses our commits and trees."""

from dataclasses import dataclass
from pathlib import Path

import git


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignCommit:
    message: str
    trailers: list[tuple[str, str]]
    parents: list[str]
    tree: str
    author: str
    committer: str
    committed: str  #: seconds and offset, as git writes them


def read_commit(path: Path, name: str) -> ForeignCommit:
    with git.Repo(path) as repo:
        commit = repo.commit(name)
        offset = -commit.committer_tz_offset // 60
        return ForeignCommit(
            message=str(commit.message),
            trailers=commit.trailers_list,
            parents=[parent.hexsha for parent in commit.parents],
            tree=commit.tree.hexsha,
            author=f"{commit.author.name} <{commit.author.email}>",
            committer=f"{commit.committer.name} <{commit.committer.email}>",
            committed=f"{commit.committed_date} {offset // 60:+03d}{offset % 60:02d}",
        )


def read_tree(path: Path, name: str) -> dict[str, tuple[str, bytes]]:
    """The mode and the content of every file of a commit or tree, in the order in which it lists them."""
    with git.Repo(path) as repo:
        root = git.Tree(repo, repo.tree(name).binsha, path="")
        files = (item for item in root.traverse(branch_first=False) if isinstance(item, git.Blob))
        return {str(file.path): (f"{file.mode:o}", file.data_stream.read()) for file in files}


def read_blob(path: Path, oid: str) -> bytes:
    with git.Repo(path) as repo:
        return bytes(git.Blob(repo, bytes.fromhex(oid)).data_stream.read())
