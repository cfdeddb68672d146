# Sourced by scripts/run and scripts/test: finds a Python and makes virtual environments with it.
# Not for calling directly. Works with Debian's bare python3, with pyenv, and beside uv.

say() { printf 'letta-code: %s\n' "$*" >&2; }

# Prints the first Python of 3.11 or newer.
find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    say "Python 3.11 or newer was not found. On Debian: apt-get install python3 python3-venv"
    return 1
}

# make_environment DIR: a fresh virtual environment with pip. Debian ships python3 without ensurepip;
# as root we may add the package ourselves, otherwise the person is told how to.
make_environment() {
    local directory=$1 python
    python=$(find_python) || return 1
    rm -rf "$directory"
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            say "installing Debian's python3-venv"
            { apt-get -q update && apt-get -qy install python3-venv; } >/dev/null || return 1
        else
            say "this Python has no venv module. On Debian: sudo apt-get install python3-venv"
            return 1
        fi
    fi
    "$python" -m venv "$directory"
}
