"""Processes under bubblewrap as the shim sees them, and the paths that they cannot write."""

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from runplan.adapters.agents.clis import agent_of
from runplan.adapters.configuration.places import KEY_VARIABLES, key_directory, user_file
from runplan.adapters.notify.links import load_key
from runplan.adapters.sandbox.bubblewrap import Bubblewrap
from runplan.adapters.sandbox.home import MOST, HomeMounts
from runplan.adapters.sandbox.view import HomeUse, Places, View
from runplan.domain.run.dispatch import SCRATCH, TEMPORARY, Ending
from runplan.domain.settings.schema import Network
from tests.support.dispatching import PATIENCE_S, Stage, stage, until
from tests.support.mounts import obstacle
from tests.support.repos import init_repo
from tests.support.tools import write_script

pytestmark = pytest.mark.rest


@pytest.fixture(autouse=True)
def works() -> None:
    if why := obstacle():
        pytest.skip(why)


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


def sandboxed_sh(on: Stage, script: str, **changes: object) -> str:
    box = Bubblewrap(shutil.which("bwrap") or "", {"PATH": os.environ["PATH"], "HOME": str(on.path / "home")})
    command = box.wrap(("sh", "-c", script), View(cwd=on.path, writable=(on.path,)))
    return on.start(*command, boxed=True, **changes)


def test_last_words_within_the_grace_come_through(on: Stage) -> None:
    dispatch = sandboxed_sh(
        on, "trap 'echo bye; exit 3' TERM; echo on; while :; do sleep 0.01; done", wall_s=1.0, grace_s=PATIENCE_S
    )

    outcome = on.outcome(dispatch)

    assert (outcome.ending, outcome.code, outcome.message) == (Ending.TIMEOUT, 3, "on\nbye\n")


def test_bytes_moved_inside_are_a_sign_of_life_and_silence_is_silence(on: Stage) -> None:
    copies = "i=0; while test $i -lt 30; do head -c 1000000 /dev/zero >copy; sleep 0.05; i=$((i+1)); done"

    assert on.outcome(sandboxed_sh(on, copies, silence_s=1.0)).code == 0
    assert on.outcome(sandboxed_sh(on, "sleep 30", silence_s=0.3)).ending is Ending.SILENT


def test_files_in_its_shared_memory_count_as_memory(on: Stage) -> None:
    outcome = on.outcome(sandboxed_sh(on, "head -c 90000000 /dev/zero >/dev/shm/x; sleep 30", memory=80_000_000))

    assert (outcome.ending, outcome.memory > 90_000_000) == (Ending.BUDGET, True)


NOTHING = HomeUse()
NO_VARIABLES: Mapping[str, str] = {}


class Place:
    """A repository with a linked checkout, and a worktree with the repository of its agent."""

    def __init__(self, place: Path) -> None:
        self.repo = init_repo(place / "repo")
        self.repo.commit("Begin", None, a="a\n")
        self.linked = place / "linked"
        self.repo.git("worktree", "add", "-q", "-b", "other", str(self.linked))
        self.home = place / "home"
        self.homes = self.repo.path / ".git/runplan/homes/a"
        self.git = self.repo.path / ".git"
        self.lanes = self.git / "runplan/lanes"
        self.trees = place / "trees"
        self.shown = dict[Path, Path]()
        for path in (*self.own, self.lanes / "b.git", self.trees / "b", self.home):
            path.mkdir(parents=True)

    @property
    def own(self) -> tuple[Path, Path, Path]:
        """The places that a dispatch may write: its worktree, its repository, its folder."""
        return self.trees / "a", self.lanes / "a.git", self.git / "runplan/dispatch/r1.1/own"

    def wrap(
        self,
        *command: str,
        uses: HomeUse = NOTHING,
        variables: Mapping[str, str] = NO_VARIABLES,
        is_judge: bool = False,
        network: Network = "all",
    ) -> tuple[str, ...]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), **variables}
        needed = (self.linked, self.git, self.trees)
        places = Places(needed=needed, shown=self.shown, state=self.git / "runplan")
        box = Bubblewrap(shutil.which("bwrap") or "", env, places)
        scratch = self.own[2].parent / SCRATCH
        for folder in TEMPORARY.values():
            (scratch / folder).mkdir(parents=True, exist_ok=True)
        view = View(cwd=self.own[0], writable=self.own, home=self.homes, scratch=scratch, uses=uses, network=network)
        return box.wrap(command, replace(view, drops_home=is_judge, is_judge=is_judge))

    def run(
        self, script: str, uses: HomeUse = NOTHING, path: str = os.environ["PATH"], *, is_judge: bool = False
    ) -> str:
        """What a shell prints in the sandbox."""
        argv = self.wrap("sh", "-c", script, uses=uses, variables={"PATH": path}, is_judge=is_judge)
        env = {"PATH": path, "HOME": str(self.home)}
        return subprocess.run(argv, cwd="/", env=env, capture_output=True, text=True, check=False).stdout

    def put(self, *names: str, text: str = "") -> None:
        """Make files in the home; without a text each one holds its name."""
        for name in names:
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(text or f"{name}\n")

    def can_write(self, directory: Path | str) -> bool:
        return self.run(f"mkdir -p '{directory}' && echo x >'{directory}/x' && echo done") == "done\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_dispatch_writes_its_own_places_home_and_temporary_files(place: Place) -> None:
    for path in (*place.own, place.home, "/tmp", "/var/tmp", "/run", "/dev/shm"):
        assert place.can_write(path), path
    place.run("echo kept >~/kept; echo gone >/dev/shm/gone; mkdir ~/.ssh && echo planted >~/.ssh/config")
    assert place.run("cat ~/kept /dev/shm/gone; cat ~/.ssh/config") == "kept\nplanted\n"
    assert [*place.home.iterdir()] == []


def test_everything_else_is_read_only(place: Place) -> None:
    runplan = place.git / "runplan"
    for path in (
        place.repo.path,
        place.linked,
        place.git,
        place.git / "objects",
        runplan,
        runplan / "homes",
        runplan / "dispatch/r1.1",
        place.lanes / "b.git",
        place.trees,
        place.trees / "b",
        "/etc",
        "/usr/local/bin",
        str(Path(__file__).parents[2] / "runplan"),
        "/proc/sys/kernel",
    ):
        place.can_write(path)  # below a private place it writes to a directory of its own
        is_written = (Path(path) / "x").exists()
        (Path(path) / "x").unlink(missing_ok=True)
        assert not is_written, path


def test_no_process_outside_can_be_signalled(place: Place) -> None:
    assert place.run(f"kill -0 $$ && echo own; kill -0 {os.getpid()} && echo other") == "own\n"


def test_entries_of_the_home_are_readable_secrets_absent_caches_private(place: Place) -> None:
    files = {
        **dict.fromkeys(
            (".profile", ".npmrc", ".tools/bin/tool", ".config/pip/pip.conf", ".cache/ms-playwright/chrome"), "yes"
        ),
        **dict.fromkeys((".ssh/id", ".config/gh/hosts.yml", ".gitconfig", ".cargo/credentials.toml"), "no"),
        **dict.fromkeys((".cache/pip/wheel", ".npm/cache", ".local/state/x/y", ".bash_history"), "no"),
    }
    place.put(*files, "dotfiles/netrc")
    (place.home / ".netrc").symlink_to("dotfiles/netrc")
    (place.home / "alias").symlink_to("dotfiles/netrc")

    seen = {name: place.run(f"cat ~/{name}") for name in files}

    assert seen == {name: f"{name}\n" if shown == "yes" else "" for name, shown in files.items()}
    assert place.run("cat ~/.netrc ~/alias ~/dotfiles/netrc") == ""
    for name in (".profile", ".config/pip/pip.conf"):
        assert place.run(f"echo x >>~/{name} && echo wrote; mv ~/{name} ~/x && echo moved") == ""
    for name in (".cache/pip", ".npm", ".config"):
        assert place.run(f"mkdir -p ~/{name} && touch ~/{name}/new && echo wrote") == "wrote\n"


def test_links_in_the_home_do_not_show_what_is_hidden_at_its_own_place(place: Place) -> None:
    place.put(".ssh/id", ".netrc", ".claude/.credentials.json", ".claude/tool", text="seen\n")
    shared = {"shared": "/tmp", "own": "/run"}
    links = {"keys": ".ssh", "key": ".ssh/id", "login": ".netrc", "agent": ".claude", "tool": ".claude/tool"} | shared
    for name, target in links.items():
        (place.home / name).symlink_to(target)
    (place.home / ".claude/tool").chmod(0o755)
    assert place.run("cat ~/keys/id ~/key ~/login ~/agent/.credentials.json; ls -A ~/shared ~/own") == ""
    assert place.run("cat ~/tool") == "seen\n", "a program that its package keeps beside its state"
    assert place.run("cat ~/keys/id", uses=HomeUse(readable=("keys",))) == "seen\n"


def test_a_project_and_an_agent_name_what_they_need_of_the_home(place: Place) -> None:
    outside = place.home.parent / "outside"
    place.put(".cli/settings", ".cli/login", ".cli.json", "../outside/cache/a", text="mine")
    uses = HomeUse(
        private=(str(place.home / ".cli"), str(outside / "cache")),
        readable=(".cli/settings",),
        shared=(str(place.home / ".cli/login"),),
        copied=(".cli.json",),
    )
    place.run("true")  # the home was made for another program
    deeds = "cat .cli/settings .cli/login .cli.json; for f in .cli/settings .cli/login .cli/new .cli.json"
    said = place.run(f"cd ~; {deeds} {outside}/cache/b; do (echo new >$f) && echo $f; done; ls {outside}/cache", uses)

    assert said == f"mineminemine.cli/login\n.cli/new\n.cli.json\n{outside}/cache/b\nb\n"
    assert [(place.home / name).read_text() for name in (".cli/settings", ".cli/login", ".cli.json")] == [
        *("mine", "new\n", "mine")
    ]
    assert sorted(path.name for path in (place.home / ".cli").iterdir()) == ["login", "settings"]
    assert [path.name for path in (outside / "cache").iterdir()] == ["a"]


def test_programs_of_the_home_work_and_write_their_caches(place: Place) -> None:
    """A directory on PATH may have private entries, and links to programs that look for their files beside them."""
    program = place.home / ".tools/lib/tool"
    linked = place.home / ".local/share/pnpm/tool"
    linked.parent.mkdir(parents=True)
    write_script(program, 'cat "$(dirname "$(readlink -f "$0")")/beside"')
    program.with_name("beside").write_text("found\n")
    linked.symlink_to("../../../.tools/lib/tool")
    search = f"{linked.parent}:{os.environ['PATH']}"
    for _ in range(2):
        assert place.run("tool; mkdir -p ~/.local/share/pnpm/store/v3 && echo wrote", path=search) == "found\nwrote\n"


def test_links_to_directories_are_there_also_after_an_update(place: Place) -> None:
    """As uv, mise and pyenv name their versions, and as people link settings and programs."""
    version = place.home / ".local/share/uv/python/3.12.1"
    python = ".local/share/uv/python/3.12.1/python\n"
    place.put("tool/1/file", "tool/2/file", ".local/share/uv/python/3.12.1/python")
    version.with_name("3.12").symlink_to("3.12.1")
    (place.home / "current").symlink_to("tool/1")
    look = "cd ~; cat .local/share/uv/python/3.12/python current/file; echo x >current/file || echo no"
    assert place.run(look) == f"{python}tool/1/file\nno\n"
    assert place.run(look, is_judge=True) == f"{python}tool/1/file\nno\n"
    (place.home / "current").unlink()
    (place.home / "current").symlink_to("tool/2")
    shutil.rmtree(place.home / "tool/1")
    assert place.run(look) == f"{python}tool/2/file\nno\n"


def test_a_script_without_a_home_finds_programs_that_are_links(place: Place) -> None:
    """As pipx and uv install them, for example the program of a git filter."""
    program = place.home / ".local/share/pipx/venvs/tool/bin/tool"
    link = place.home / ".local/bin/tool"
    link.parent.mkdir(parents=True)
    write_script(program, "cat")
    link.symlink_to(program)
    env = {"PATH": f"{link.parent}:{os.environ['PATH']}", "HOME": str(place.home)}
    argv = Bubblewrap(shutil.which("bwrap") or "", env).wrap(("tool",), View(cwd=Path("/")))
    ran = subprocess.run(argv, env=env, input="text\n", capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("text\n", "")


def test_a_home_with_thousands_of_files_is_no_obstacle(place: Place) -> None:
    for name in (".profile", *(f"x{number}" for number in range(4_000))):
        (place.home / name).touch()
    assert place.run("ls -A ~ | head -n 1; ls ~ | wc -l") == f".profile\n{MOST - 1}\n"
    env = {"HOME": str(place.home)}
    (said,) = HomeMounts(env, NOTHING).describe_left_out()
    assert said.startswith(f"the sandbox shows {MOST} entries of your home, not the last 3501 of {place.home}; name ")
    assert place.run("ls ~/x999", HomeUse(readable=("x999",))) == f"{place.home}/x999\n"


def test_set_up_can_install_beside_what_is_installed(place: Place) -> None:
    mise = ".local/share/mise/installs/node"
    browsers = (".cache/ms-playwright/chromium-1/chrome", ".cache/ms-playwright/.links/a")
    place.put("go/bin/old", *browsers, f"{mise}/1/x", text="mine\n")
    place.run(
        "cd ~ && echo x >go/bin/new; mkdir -p .cache/ms-playwright/.links && echo x >.cache/ms-playwright/.links/a"
    )
    assert (
        place.run("cd ~ && cat go/bin/* .cache/ms-playwright/*/* .cache/ms-playwright/.links/a") == "x\nmine\nmine\nx\n"
    )
    assert place.run(
        "cd ~ && for f in go/bin/old .cache/ms-playwright/chromium-1/new; do echo x >$f || echo no; done"
    ) == ("no\nno\n")
    assert place.run(f"cd ~/{mise}; mkdir 2 && echo x >2/x; cat */x; echo x >1/x || echo no") == "mine\nx\nno\n"
    own = HomeUse(private=(".local/share/mise", ".cache"))
    assert place.run(f"cd ~; mkdir -p {mise}/1 .cache/ms-playwright/chromium-1; ls {mise}/1", uses=own) == ""


def test_places_that_an_output_names_and_a_view_hides_are_found_by_setting(place: Place) -> None:
    place.put(".cache/models/big/one", ".bash_history", ".ssh/id", ".profile", "outside.sock")
    with socket.socket(socket.AF_UNIX) as listening, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        listening.bind(f"{folder}/x.sock")
        output = f"""
            cannot open '{place.home}/.cache/models/big/one': No such file; {place.home}/.cache/models/two, too.
            {place.home}/.bash_history. {place.home}/.ssh/id, {place.home}/.profile {place.home}/.cache/gone
            connection to "{folder}/x.sock" failed; {folder} is there; https://example.org/run/x /run /tmp
        """
        uses = HomeUse(readable=(".bash_history",))
        env = {"HOME": str(place.home)}
        found = HomeMounts(env, NOTHING).find_hidden(output)
        assert found == {"home": [".bash_history", ".cache/models"], "mounts": [f"{folder}/x.sock"]}
        assert HomeMounts(env, uses | HomeUse(mounts=(folder,))).find_hidden(output) == {"home": [".cache/models"]}


def test_the_key_of_links_and_the_settings_of_the_user_cannot_be_read(place: Place) -> None:
    """Whoever reads the key, or the address of a channel, could approve a change. A key may be made meanwhile."""
    env = {"HOME": str(place.home)}
    settings = user_file(env)
    settings.parent.mkdir(parents=True)
    settings.write_text('[notify]\nurls = ["ntfy://secret"]\n')
    load_key(key_directory(env))
    keys = key_directory(env)
    look = f"cat '{settings}' '{keys}'/*; touch made; until test -e go; do :; done; ls '{keys}'"
    process = subprocess.Popen(place.wrap("sh", "-c", look), stdout=subprocess.PIPE)
    until((place.own[0] / "made").exists)
    (keys / "later.key").write_text("secret")
    (place.own[0] / "go").touch()
    assert process.communicate(timeout=PATIENCE_S)[0] == b""


def test_a_token_stays_hidden_when_the_user_configures_git_meanwhile(place: Place) -> None:
    """Git replaces the file by a rename, which takes away what is mounted over it."""
    place.repo.git("config", "remote.origin.url", "https://u:token@example.org/x")
    place.shown[place.git / "config"] = place.home / "copy"
    (place.home / "copy").write_text("[core]\n")
    wait = "touch made; until test -e go; do sleep 0.01; done"
    look = f"{wait}; cat '{place.git}/config'; git -C '{place.git}' rev-list --all"
    process = subprocess.Popen(place.wrap("sh", "-c", look), stdout=subprocess.PIPE, text=True)
    until((place.own[0] / "made").exists)
    place.repo.git("config", "user.name", "New")
    (place.own[0] / "go").touch()
    assert process.communicate(timeout=PATIENCE_S)[0] == f"[core]\n{place.repo.head()}\n"


def test_a_process_can_lock_neither_the_journal_nor_a_lock_of_runplan(place: Place) -> None:
    """A file that can be read can be locked."""
    state = place.git / "runplan"
    for name in ("journal.db", "journal.db-shm", "landing.flock", "locks/x", "dispatch/r1.2/lock", "gitconfig"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).touch()
    found = place.run(f"cd '{state}' && find . -type f ! -path '*/scratch/*'; ls dispatch")
    assert found == "./gitconfig\nr1.1\n"


def test_a_socket_that_can_be_read_cannot_be_connected_to(place: Place) -> None:
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{place.home}/x/a s')"
    script = f'{sys.executable} -c "{connect}" 2>/dev/null && echo connected'
    (place.home / "x").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place.home / "x/a s"))
        server.listen()
        assert place.run(script) == ""
        assert place.run(script, HomeUse(mounts=(f"{place.home}/x",))) == "connected\n"


def test_only_a_limited_network_keeps_a_process_from_an_abstract_socket(place: Place) -> None:
    """A known limit, as are sockets of a relative path, and those that are made while a process runs."""
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1].replace('@', chr(0)))"
    (place.home / "x").mkdir()
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as relative:
        abstract.bind(f"\0runplan-{os.getpid()}")
        relative.bind(os.path.relpath(place.home / "x/s"))
        abstract.listen()
        relative.listen()
        for name, network, reached in (
            (f"@runplan-{os.getpid()}", "all", True),
            (f"@runplan-{os.getpid()}", "none", False),
            (f"{place.home}/x/s", "none", True),
        ):
            argv = place.wrap(sys.executable, "-c", connect, name, network=network)
            ran = subprocess.run(argv, capture_output=True, check=False)
            assert (ran.returncode == 0) is reached, (name, network, ran.stderr)
    wait = "import os, time; open('made', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    process = subprocess.Popen(place.wrap(sys.executable, "-c", wait + connect, f"{place.home}/x/later"))
    until((place.own[0] / "made").exists)
    with socket.socket(socket.AF_UNIX) as later:
        later.bind(str(place.home / "x/later"))
        later.listen()
        (place.own[0] / "go").touch()
        assert process.wait(PATIENCE_S) == 0


def test_the_prompt_is_a_copy_that_the_process_may_change(on: Stage) -> None:
    (on.path / "prompt").write_text("work\n")
    dispatch = sandboxed_sh(on, "cat; echo other >/proc/self/fd/0", stdin=str(on.path / "prompt"))
    assert on.outcome(dispatch).code == 0
    assert (on.path / "prompt").read_text() == "work\n"


def test_the_keys_to_the_database_of_a_fleet_and_files_that_variables_name_cannot_be_read(place: Place) -> None:
    named = {name: place.home / name.lower() for name in KEY_VARIABLES}
    files = [place.home / ".pgpass", place.home / ".pg_service.conf", place.home / ".postgresql/postgresql.key"]
    files += [user_file({"HOME": str(place.home)}), *named.values()]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("hunter2")
    secret = {**os.environ, "RUNPLAN_FLEET_DSN": "postgresql://u:hunter2@h/db"}
    worker = subprocess.Popen(["sleep", "60"], env=secret)
    look = ("sh", "-c", f"cat {' '.join(map(str, files))} /proc/*/environ; ls /proc/{worker.pid}; true")
    try:
        argv = place.wrap(*look, variables={name: str(file) for name, file in named.items()})
        read = subprocess.run(argv, capture_output=True, check=True)
    finally:
        worker.kill()
        worker.wait()
    assert b"hunter2" not in read.stdout
    assert b"cmdline" not in read.stdout


def test_no_parent_of_a_worktree_can_be_renamed(place: Place) -> None:
    worktree = place.own[0]
    for path in (place.trees, place.trees.parent, place.trees.parent.parent):
        place.run(f"mv '{path}' '{path}.moved'")
        assert worktree.is_dir()


def test_links_in_its_home_lead_no_mount_elsewhere(place: Place) -> None:
    place.put(".config/pip/pip.conf", text="mine")
    hooks = place.git / "hooks"
    hooks.mkdir(exist_ok=True)
    for target in (f"/oldroot{hooks}", str(hooks), "/nowhere"):
        place.run(f"mv ~/.config ~/.c$$; ln -s {target} ~/.config")
        assert place.run("cat ~/.config/pip/pip.conf") == "mine"
        assert not (hooks / "pip").exists()
    place.run("mv ~/.config ~/.c$$; echo x >~/.config")
    assert place.run("cat ~/.config/pip/pip.conf") == "mine"


def test_root_keeps_no_capability_that_opens_files_by_number_or_changes_mounts(place: Place) -> None:
    line = place.run("grep CapEff /proc/self/status")
    allowed = 0x404FB if os.geteuid() == 0 else 0  # those that the engine names
    assert int(line.split()[1], 16) & ~allowed == 0, line


def test_keys_of_the_kernel_cannot_be_read(place: Place) -> None:
    """A keyring is found by the uid or its number: no namespace hides it."""
    keyctl = {"x86_64": 250, "aarch64": 219, "riscv64": 219}[platform.machine()]
    look = f"import ctypes; print([ctypes.CDLL(None).syscall({keyctl}, 0, ring, 1) for ring in (-3, -4, -5)])"
    assert place.run(f'{sys.executable} -c "{look}"') == "[-1, -1, -1]\n"


def test_secrets_below_a_checkout_in_the_home_and_their_backups_are_absent(place: Place) -> None:
    hidden = (".config/gh/hosts.yml", ".config/gh.bak/hosts.yml", ".netrc~", ".gitconfig.orig", ".git-credentials-old")
    place.put(*hidden, ".config/app", ".dockerignore")
    (place.home / "link").symlink_to(".netrc~")
    env = {"PATH": os.environ["PATH"], "HOME": str(place.home)}
    look = f"cd ~; cat {' '.join(hidden)} link .config/app .dockerignore"
    for needed, uses, also in (
        ((), NOTHING, ""),
        ((place.home / ".config",), NOTHING, ""),
        ((place.home / ".config",), HomeUse(readable=(".config/gh",)), f"{hidden[0]}\n"),
    ):
        box = Bubblewrap(shutil.which("bwrap") or "", env, Places(needed=needed))
        argv = box.wrap(("sh", "-c", look), View(cwd=Path("/"), uses=uses))
        ran = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        assert ran.stdout == f"{also}.config/app\n.dockerignore\n", (needed, ran.stderr)


def test_a_verifier_has_the_users_settings_of_its_program_and_none_that_set_up_left(place: Place) -> None:
    place.put(".codex/settings", ".codex/login", ".claude.json", ".local/bin/tool", text="mine\n")
    uses = HomeUse(
        private=(".codex",), readable=(".codex/settings",), shared=(".codex/login",), copied=(".claude.json",)
    )
    search = f"{place.home}/.local/bin:{os.environ['PATH']}"
    planted = ".codex/settings .codex/INSTRUCTIONS.md .claude.json .env .local/bin/git .local/bin/tool"
    place.run(
        f"cd ~; mkdir -p .codex .local/bin .cache; for f in {planted} .cache/wheel; do echo set-up >$f; done",
        path=search,
    )
    look = f"cd ~; for f in {planted} .codex/login .cache/wheel; do test ! -e $f || echo $f: $(cat $f); done"
    mine = [f"{name}: mine" for name in (".codex/settings", ".claude.json", ".local/bin/tool", ".codex/login")]
    assert place.run(look, uses, search, is_judge=True).splitlines() == [*mine, ".cache/wheel: set-up"]


@pytest.mark.parametrize(
    ("agent", "login", "is_shared"),
    [
        ("claude", ".claude/.credentials.json", True),
        ("codex", ".codex/auth.json", True),
        ("gemini", ".gemini/oauth_creds.json", True),
        ("opencode", ".local/share/opencode/auth.json", False),
        ("qwen", ".qwen/oauth_creds.json", False),
    ],
)
def test_a_login_is_refreshed_at_home_or_in_a_copy(place: Place, agent: str, login: str, *, is_shared: bool) -> None:
    """A program that replaces the file has a copy; it stays as it is until the home is gone."""
    place.put(login, text="old\n")
    uses = agent_of(agent).use_home({"HOME": str(place.home)})
    refresh = f"echo new >~/{login}" if is_shared else f"cp ~/{login} ~/{login}.new; echo new >~/{login}.new"
    move = "true" if is_shared else f"mv ~/{login}.new ~/{login}"
    assert place.run(f"cat ~/{login}; {refresh}; {move} && cat ~/{login}", uses) == "old\nnew\n"
    assert place.run(f"cat ~/{login}", uses) == "new\n"
    users = "new\n" if is_shared else "old\n"
    assert (place.home / login).read_text() == users
    assert place.run(f"cat ~/{login}", uses, is_judge=True) == users
