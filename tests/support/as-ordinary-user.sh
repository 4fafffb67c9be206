#!/bin/sh
# as-ordinary-user.sh PYTHON ARGUMENT...: run the interpreter as a user without privileges, with a TMPDIR of its own.
# The repository and the interpreter may lie in a home directory that only root may enter: in a mount namespace of its
# own, an open directory with both takes the place of that one.
set -eu
uid=65534

skip() {
    echo "as-ordinary-user: skipped: $1"
    exit 0
}

if [ "$(id -u)" != 0 ]; then
    skip "this is an ordinary user already"
fi
for tool in unshare setpriv mount; do
    command -v "$tool" >/dev/null || skip "there is no $tool"
done
unshare --mount true 2>/dev/null || skip "root may not make a mount namespace here"

PREFIX=$("$1" -c 'import sys; print(sys.base_prefix)')
SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT
mkdir "$SCRATCH/tmp" "$SCRATCH/1" "$SCRATCH/2"
chmod 755 "$SCRATCH"
chown "$uid:$uid" "$SCRATCH/tmp"
export PREFIX SCRATCH

# shellcheck disable=SC2016
unshare --mount sh -euc '
closed() { # the first directory above the path that others may not enter
    case $1 in / | .) return ;; esac
    closed "$(dirname "$1")"
    find "$1" -maxdepth 0 -type d ! -perm -001
}
uid=$1
shift
mount --rbind "$PWD" "$SCRATCH/1"
mount --rbind "$PREFIX" "$SCRATCH/2"
for place in "$PWD" "$PREFIX"; do
    top=$(closed "$place" 2>/dev/null | head -n 1)
    [ -z "$top" ] || mount -t tmpfs -o mode=755 none "$top"
done
number=1
for place in "$PWD" "$PREFIX"; do
    [ -e "$place" ] || { mkdir -p "$place" && mount --rbind "$SCRATCH/$number" "$place"; }
    number=2
done
cd "$PWD"
export HOME="$SCRATCH/tmp" TMPDIR="$SCRATCH/tmp" USER=nobody LOGNAME=nobody PYTHONDONTWRITEBYTECODE=1
exec setpriv --reuid="$uid" --regid="$uid" --clear-groups --inh-caps=-all "$@"
' sh "$uid" "$@"
