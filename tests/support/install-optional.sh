#!/bin/sh
# Installs the programs without which some tests are skipped, as far as they are missing. Those of containers may fail:
# their tests run only where a container can be started.
set -eu

list_missing() {
    missing=
    for pair; do
        command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
    done
}

install_missing() {
    if ! command -v apt-get >/dev/null; then
        echo "install-optional: there is no apt-get here; install with your package manager:$missing" >&2
        return 1
    fi
    root=
    [ "$(id -u)" -eq 0 ] || root=sudo
    echo "Installing with ${root:+sudo }apt-get:$missing"
    $root apt-get update -qq || return 1
    # shellcheck disable=SC2086 - a list of names
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing
}

list_missing bwrap:bubblewrap git-lfs:git-lfs zsh:zsh fish:fish cc:gcc cc:libc6-dev systemd-analyze:systemd ip:iproute2
[ -z "$missing" ] || install_missing
list_missing podman:podman runc:runc debootstrap:debootstrap
[ -z "$missing" ] || install_missing || echo "install-optional: no containers: make test-container needs$missing" >&2
echo "Every optional program is installed, as far as it can be."
