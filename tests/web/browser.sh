#!/bin/sh
# See that there is a Chromium for the tests of the page: install Debian's where apt and root are at hand, else say how.
set -eu
if [ -n "${HOLDFAST_BROWSER:-}" ] || command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing chromium"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    if { apt-get update && apt-get install -y --no-install-recommends chromium; } >"$log" 2>&1; then rm -f "$log"; exit 0; fi
    tail -n 5 "$log"
    rm -f "$log"
    echo "chromium could not be installed; the tests of the page need one"
fi
echo "for the tests of the page install Chromium (Debian: apt-get install chromium), or name one in HOLDFAST_BROWSER"
