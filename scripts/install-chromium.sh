#!/bin/sh
# Installs Debian's Chromium, which the tests of sdk/js need, unless it is installed. Needs root to install.
set -eu

if [ -x "${PROMBUS_CHROMIUM:-/usr/bin/chromium}" ]; then exit 0; fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium
