#!/bin/sh
# Installs Chromium, as far as it is missing. Playwright drives this one and downloads none.
set -eu

if command -v chromium >/dev/null; then
    echo "Chromium is installed."
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "install-browser: there is no apt-get here; install with your package manager: chromium" >&2
    exit 1
fi
root=
[ "$(id -u)" -eq 0 ] || root=sudo
echo "Installing with ${root:+sudo }apt-get: chromium"
$root apt-get update -qq
$root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core
