# Sourced by the other scripts: `use_venv EXTRA [EXTRA]` makes .venv usable, installs the project into it, activates it.
# PYTHON names the interpreter (default: python3).

fail() {
    echo "error: $1${2:+; $2}" >&2
    exit 1
}

is_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

make_venv() {
    local python=${PYTHON:-python3}
    command -v "$python" >/dev/null || fail "'$python' is not installed; Python 3.10 or later is needed"
    is_python "$python" || fail "Python 3.10 or later is needed, '$python' is $("$python" --version 2>&1)" \
        "name a newer one like this: PYTHON=python3.12 bash $0"
    "$python" -c 'import venv, ensurepip' 2>/dev/null || fail "the module venv of '$python' is missing" \
        "on Debian or Ubuntu: apt install python3-venv"
    echo "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
}

# The first argument names extras; CuPy for this machine's NVIDIA driver is added, or the second where there is no GPU.
use_venv() {
    local extras cuda mark
    { is_python .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; } || make_venv
    cuda=$(.venv/bin/python scripts/driver.py)
    extras="$1${cuda:+,$cuda}"
    [ -n "$cuda" ] || extras="$1${2:+,$2}"
    # Installed from this folder, with these requirements and extras: nothing to do, and no network needed.
    mark="$PWD $(cksum <pyproject.toml) $extras"
    if ! grep -qsxF "$mark" .venv/installed; then
        echo "installing convnet[$extras] into .venv"
        # Editable: what is in this folder is what runs.
        .venv/bin/python -m pip install $([ -t 1 ] || echo --quiet) --disable-pip-version-check --editable ".[$extras]"
        echo "$mark" >>.venv/installed
    fi
    PATH="$PWD/.venv/bin:$PATH"
}
