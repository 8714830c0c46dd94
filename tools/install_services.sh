#!/usr/bin/env bash
# Installs servers for tests of stores that no wheel holds, if this user may: redis-server (Debian) and Azure's emulator
# (npm). Tests that lack their server skip. MongoDB's server is in neither registry.
set -euo pipefail

if ! command -v redis-server > /dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        apt-get update -qq
        apt-get install -qq --yes --no-install-recommends redis-server
    else
        echo "redis-server is missing and cannot be installed here: needs root and apt-get" >&2
    fi
fi

if ! command -v azurite-blob > /dev/null; then
    if command -v npm > /dev/null && npm install --silent --global azurite; then
        :
    else
        echo "azurite-blob is missing and cannot be installed here: needs npm and its global folder" >&2
    fi
fi
