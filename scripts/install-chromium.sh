#!/bin/sh
# Installs Debian's Chromium, in which the tests of sdk/js run, where there is none. Needs root for that.
set -eu

if [ -x "${PROMBUS_CHROMIUM:-/usr/bin/chromium}" ]; then exit 0; fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium
