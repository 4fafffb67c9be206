#!/bin/sh
# Installs the agent command lines that `make test-agents` drives, at the versions they were tested with, into .agents/.
# What cannot be installed is named at the end and left out; the others are installed all the same.
#
#   tests/agents/install.sh                 every one
#   tests/agents/install.sh claude aider    only these
#
# Where npm and pip fetch from is theirs to know (their own configuration); nothing here names a place.

set -u

ROOT=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
AGENTS="$ROOT/.agents"
PYTHON=${PYTHON:-python3}
FAILED=""

mkdir -p "$AGENTS/bin" "$AGENTS/log"

# how to install it, what, at which version, and what else: as its samples say
wanted() {
    sed -n 's/^install = "\(.*\)"$/\1/p' "$ROOT/tests/samples/$1/expected.toml" 2>/dev/null | grep .
}

by_npm() { # name package version
    # Nothing of these packages has to be built; scripts that npm holds back are not missed.
    npm install --prefix "$AGENTS/$1" --no-audit --no-fund --loglevel=error "$2@$3" >"$AGENTS/log/$1" 2>&1 || return 1
    ln -sf "../$1/node_modules/.bin/$1" "$AGENTS/bin/$1"
}

by_pip() { # name package version [more packages]
    name=$1 package=$2 version=$3
    shift 3
    test -x "$AGENTS/$name/bin/python" || "$PYTHON" -m venv "$AGENTS/$name" >"$AGENTS/log/$name" 2>&1 || return 1
    "$AGENTS/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$package==$version" "$@" \
        >>"$AGENTS/log/$name" 2>&1 || return 1
    ln -sf "../$name/bin/$name" "$AGENTS/bin/$name"
}

install() { # name
    set -- "$1" $(wanted "$1") || return 1
    name=$1 way=$2
    shift 2
    if test "$(cat "$AGENTS/$name/.version" 2>/dev/null)" = "$2" && test -x "$AGENTS/bin/$name"; then
        echo "$name $2: already here"
        return 0
    fi
    if "by_$way" "$name" "$@" && "$AGENTS/bin/$name" --help </dev/null >>"$AGENTS/log/$name" 2>&1; then
        echo "$2" >"$AGENTS/$name/.version"
        echo "$name $2: installed"
    else
        FAILED="$FAILED $name"
        echo "$name $2: not installed; the end of $AGENTS/log/$name:" >&2
        tail -n 5 "$AGENTS/log/$name" | sed 's/^/    /' >&2
    fi
}

for name in ${*:-$(cd "$ROOT/tests/samples" && grep -l '^install = ' */expected.toml | cut -d / -f 1)}; do
    if wanted "$name" >/dev/null; then
        install "$name"
    else
        FAILED="$FAILED $name"
        echo "$name: not an agent this installs" >&2
    fi
done

if test -n "$FAILED"; then
    echo "not installed:$FAILED" >&2
    exit 1
fi
