#!/bin/sh
# packages.sh NAME...: see that these programs are here, the shells whose completion is tested, a Chromium for the tests
# of the page, bubblewrap for the sandboxes, servers to be compared with: install Debian's where apt and root are at
# hand, else say how. Each is installed for itself, so that one which cannot be had costs only its own tests;
# `.venv/.unavailable` lists these.
set -eu
missing=""
for name in "$@"; do
    if [ "$name" = chromium ] && { [ -n "${HOLDFAST_BROWSER:-}" ] || command -v chromium-browser >/dev/null; }; then
        continue
    fi
    program=$name
    if [ "$name" = etcd-server ]; then program=etcd; fi
    if [ "$name" = bubblewrap ]; then program=bwrap; fi
    command -v "$program" >/dev/null || missing="$missing $name"
done
if [ -z "$missing" ]; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    timeout 120 apt-get update >"$log" 2>&1 || tail -n 3 "$log"
    : >.venv/.unavailable
    left=""
    for name in $missing; do
        if ! timeout 300 apt-get install -y --no-install-recommends "$name" >"$log" 2>&1; then
            tail -n 5 "$log"
            echo "$name could not be installed"
            echo "$name" >>.venv/.unavailable
            left="$left $name"
        fi
    done
    rm -f "$log"
    missing=$left
fi
if [ -n "$missing" ]; then
    echo "their tests need$missing (Debian: apt-get install$missing); HOLDFAST_BROWSER names another Chromium"
fi
