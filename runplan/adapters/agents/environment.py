"""Selects variables: those an agent gets, those sent to the daemon with a run, and those a run cannot do without.

Values are never stored. A run records only the names that it needs.
"""

from collections.abc import Collection, Mapping, Sequence

from runplan.adapters.agents.clis import agent_of
from runplan.adapters.configuration.load import OURS
from runplan.adapters.processes import MARK
from runplan.domain.gitfacts import AGENT
from runplan.domain.run.reasons import FORGE_TOKENS, describe_lost
from runplan.domain.settings.schema import AgentsSettings
from runplan.domain.text import command

ALLOWED = frozenset(("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR"))
ALLOWED_PREFIXES = ("LC_", "XDG_")
#: Variables that name a host on which GitLab runs; CI of GitLab sets the last two.
GITLAB_HOSTS = ("GITLAB_HOST", "GITLAB_API_URL", "CI_SERVER_FQDN", "CI_SERVER_HOST")
#: Tokens of forges, and where their programs find more; sent with runs that land by pull request.
FORGE = (*FORGE_TOKENS, *GITLAB_HOSTS, "GH_CONFIG_DIR", "GLAB_CONFIG_DIR", "GITHUB_API_URL", "GITHUB_SERVER_URL")
_LOGINS = ("GIT_ASKPASS", "SSH_AGENT_PID", "SSH_ASKPASS", "SSH_AUTH_SOCK")
#: Keys to the forge and to other machines. An agent never gets them, even if a setting names them.
NEVER = frozenset((*FORGE_TOKENS, *_LOGINS)).union(
    ("BITBUCKET_TOKEN", "CI_JOB_TOKEN", "FORGEJO_TOKEN", "GITEA_TOKEN", "GL_TOKEN", "OAUTH_TOKEN")
)
#: Variables that git and runplan obey. They are set here and never passed on.
_RESERVED = ("GIT_", "RUNPLAN_")
#: runplan itself fetches and pushes with these; agents get none of them.
PUSHING = frozenset(("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GNUPGHOME", *_LOGINS)).union(
    ("EMAIL", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_PROXY_COMMAND")
)
#: Network proxies, certificates and the homes of tools, without which a set-up may not find what it fetches.
FETCHING = frozenset(
    (
        *("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "all_proxy", "http_proxy", "https_proxy", "no_proxy"),
        *("CARGO_HOME", "GOPATH", "GOROOT", "JAVA_HOME", "NVM_DIR", "PYENV_ROOT", "RUSTUP_HOME"),
        *("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"),
    )
)
#: With them a project's checks run as in a terminal.
TOOLS = FETCHING | {
    *("CONDA_PREFIX", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "DOCKER_HOST", "VIRTUAL_ENV", "WAYLAND_DISPLAY"),
}
#: What an interpreter needs to find itself and runplan.
_OWN = frozenset(("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", MARK)).union(
    ("PATH", "HOME", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
)
#: With this identity a reflog entry shows that an agent moved a ref.
AGENT_GIT = {
    "GIT_AUTHOR_NAME": AGENT.name,
    "GIT_AUTHOR_EMAIL": AGENT.email,
    "GIT_COMMITTER_NAME": AGENT.name,
    "GIT_COMMITTER_EMAIL": AGENT.email,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_NO_REPLACE_OBJECTS": "1",
}


def own_environment(caller: Mapping[str, str]) -> dict[str, str]:
    """The environment of the spawner and the shims: an agent can read it, so it has no secrets."""
    return {name: value for name, value in caller.items() if name in _OWN or name.startswith("PYTHON")}


def agent_environment(caller: Mapping[str, str], *, keep: Sequence[str], settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of an agent: allowed variables of the caller, `settings`, and its identity for git."""
    return {**allowed_variables(caller, keep=keep), **settings, **AGENT_GIT}


def allowed_variables(caller: Mapping[str, str], *, keep: Sequence[str]) -> dict[str, str]:
    """The caller's variables that agents, tests and setup get; `keep` names further ones."""
    names = ALLOWED.union(name for name in keep if not name.startswith(_RESERVED)) - NEVER
    return {name: value for name, value in caller.items() if name in names or name.startswith(ALLOWED_PREFIXES)}


def for_a_run(
    caller: Mapping[str, str], agents: AgentsSettings, *, forge: bool = False, checks: Sequence[str] = ()
) -> dict[str, str]:
    """The variables sent with `start`. The daemon keeps them in memory for the run."""
    tables = ((*agent_of(table.kind).list_variables(table, caller), *table.env) for table in agents.used)
    return _select_sent(caller, ALLOWED.union(checks, FORGE if forge else (), *tables), (*ALLOWED_PREFIXES, "RUNPLAN_"))


def for_the_daemon(caller: Mapping[str, str]) -> dict[str, str]:
    """The environment of a new daemon: no keys, and no settings, which would apply to every run."""
    return _select_sent(caller, ALLOWED, (*ALLOWED_PREFIXES, "PYTHON"))


def needed_by_a_run(
    sent: Mapping[str, str], agents: AgentsSettings, *, pushes: bool, forge: bool = False, checks: Sequence[str] = ()
) -> tuple[str, ...]:
    """The names without which the run cannot continue: its agents' keys, the SSH agent to push, the forge's token."""
    keys = {key for table in agents.used for key in (*table.env, *agent_of(table.kind).keys_for(table.model))}
    wanted = {*checks, *keys, *(("SSH_AUTH_SOCK",) if pushes else ()), *(FORGE_TOKENS if forge else ())}
    return tuple(sorted(name for name in wanted if sent.get(name)))


def describe_missing(names: Sequence[str], *, plan: str) -> str:
    """Why a run waits, and the command that ends the wait."""
    pronoun = "it" if len(names) == 1 else "them"
    resume = command("runplan", "resume", plan)
    return f"{describe_lost(names)}; resume it from a shell that has {pronoun}: {resume}"


def _select_sent(caller: Mapping[str, str], names: Collection[str], prefixes: tuple[str, ...]) -> dict[str, str]:
    wanted = PUSHING.union(TOOLS, names)
    kept = (name for name in caller if name in wanted or name.startswith(prefixes))
    return {name: caller[name] for name in kept if name not in OURS}
