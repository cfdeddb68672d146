# Sourced by the scripts beside it: finds a Python and makes virtual environments with it. Not for
# calling directly. Works with Debian's bare python3 and with pyenv.

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

# need_bubblewrap: the tests of the sandbox run with the real one. As root we may add the package ourselves,
# otherwise the person is told how to.
need_bubblewrap() {
    if ! command -v bwrap >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing Debian's bubblewrap"
        { apt-get -q update && apt-get -qy install bubblewrap; } >/dev/null || return 1
    fi
    if ! command -v bwrap >/dev/null; then
        say "the tests of the sandbox need bubblewrap. On Debian: sudo apt-get install bubblewrap"
        return 1
    fi
}

# project_environment ROOT: sets $environment to a virtual environment that runs this checkout, made the
# first time and after pyproject.toml changed. Two starts at once: one sets up, the other waits.
project_environment() {
    local root=$1 wanted stamp
    if [ -w "$root" ]; then
        environment=$root/.venv
    else
        environment=${XDG_CACHE_HOME:-$HOME/.cache}/letta-code/environments/$(printf %s "$root" | sha256sum | cut -c1-16)
        mkdir -p "$(dirname "$environment")"
    fi
    wanted=$(sha256sum <"$root/pyproject.toml")$root
    stamp=$environment/.letta-code-stamp
    [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || return 0
    exec 9>"$environment.lock"
    flock 9
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        say "setting up a private environment in $environment (once, about a minute)"
        make_environment "$environment"
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check -e "$root" >&2
        # Compiled once here rather than at somebody's first question: it halves the first start.
        "$environment/bin/python" -m compileall -q "$environment/lib" >/dev/null || true
        printf '%s' "$wanted" >"$stamp"
    fi
    exec 9>&-
}
