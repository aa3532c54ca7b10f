#!/usr/bin/env bash
# Make .venv and install a requirements file into it: tools/setup.sh REQUIREMENTS STAMP
#
# The stamp is written when everything is installed, and only then. Whatever is missing on the machine is said in one line
# with its remedy; pip's own words go to .venv/install.log. PYTHON names the Python to start from.
set -euo pipefail

requirements=$1
stamp=$2
log=.venv/install.log
oldest="3.11"

fail() {
    echo "Set-up stopped: $*" >&2
    exit 1
}

recent_enough() { # a Python that runs and is not too old
    "$1" -c "import sys; sys.exit(sys.version_info < (${oldest/./, }))" >/dev/null 2>&1
}

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo "missing"
}

find_python() {
    local name
    for name in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if recent_enough "$name"; then
            echo "$name"
            return
        fi
    done
    fail "Python $oldest or newer is needed, and ${PYTHON:-python3} is $(version_of "${PYTHON:-python3}")." \
        "Install one, or name it: make book PYTHON=/path/to/python3.12"
}

make_environment() {
    local python
    python=$(find_python)
    "$python" -c "import venv, ensurepip" >/dev/null 2>&1 ||
        fail "$python cannot make virtual environments. On Debian and Ubuntu: sudo apt install python$(version_of "$python")-venv"
    local words
    words=$("$python" -m venv --clear .venv 2>&1) ||
        fail "$python could not make .venv here: $(echo "$words" | tail -n 1)"
}

explain_pip() { # the one line that helps, out of pip's many
    if grep -q "No space left on device" "$log"; then
        fail "the disk is full. The packages need several GB; make room and run the same command again. (pip's log: $log)"
    elif grep -qiE "NewConnectionError|NameResolution|name resolution|ConnectTimeout|ReadTimeout|ProxyError|unreachable" "$log"; then
        fail "the package index cannot be reached. Check the network and run the same command again. (pip's log: $log)"
    fi
    local words
    words=$(grep "^ERROR:" "$log" | tail -n 1 || true)
    fail "pip could not install $requirements: ${words:-it was cut short}. (pip's log: $log)"
}

if ! { recent_enough .venv/bin/python && .venv/bin/python -c "import pip" 2>/dev/null; }; then
    make_environment
fi
rm -f "$stamp"
echo "Installing $requirements into .venv; the first time takes some minutes. (pip's log: $log)"
.venv/bin/python -m pip install --no-input --disable-pip-version-check --progress-bar off -r "$requirements" >"$log" 2>&1 ||
    explain_pip
touch "$stamp"
