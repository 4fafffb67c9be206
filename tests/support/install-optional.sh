#!/bin/sh
# Installs the programs without which some tests are skipped, as far as they are missing.
set -eu

missing=
for pair in bwrap:bubblewrap git-lfs:git-lfs zsh:zsh fish:fish cc:gcc cc:libc6-dev systemd-analyze:systemd \
    ip:iproute2 podman:podman runc:runc debootstrap:debootstrap; do
    command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
done
if [ -z "$missing" ]; then
    echo "Every optional program is installed."
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "install-optional: there is no apt-get here; install with your package manager:$missing" >&2
    exit 1
fi
root=
[ "$(id -u)" -eq 0 ] || root=sudo
echo "Installing with ${root:+sudo }apt-get:$missing"
$root apt-get update -qq
# shellcheck disable=SC2086 - a list of names
$root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing
