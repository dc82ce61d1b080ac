#!/usr/bin/env bash
# Installs the dependencies of building and testing: Debian or Ubuntu packages, and the Python tools in .venv.
# Does nothing if all are present, so that every make target can call it. See --help.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: setup.sh [--offline-ok] [--no-venv | --demo] [--benchmarks] [--with PACKAGE]...

Installs missing packages with apt-get (as root or with passwordless sudo) and the Python tools of requirements-dev.txt
in .venv. A second call finds everything present and is instant. If the interpreter lacks CPython's tests of process
pools, they are unpacked in .venv; if that fails, one test is skipped.

  --offline-ok     install nothing; print what is missing and succeed
  --demo           packages, and in .venv only the needs of the Python package; without Python 3.10 skip the latter
  --no-venv        packages only, to build the C++ library without linting and testing
  --benchmarks     also the libraries that benchmarks compare with; skip those that cannot be installed
  --with PACKAGE   also this package, e.g. clang-16; repeatable
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
packages=(g++ cmake ninja-build git libfmt-dev libcli11-dev nlohmann-json3-dev libmsgpack-cxx-dev
  libgtest-dev)
tools=(doxygen gdb)  # for linting, and for the stacks of tests that hang
peers=(libboost-dev libzmq5)  # optional contenders of benchmarks
offline_ok=false
want_venv=true
want_peers=false
is_demo=false

while (($# > 0)); do
  case $1 in
    --offline-ok) offline_ok=true ;;
    --no-venv) want_venv=false ;;
    --demo) is_demo=true ;;
    --benchmarks) want_peers=true ;;
    --with)
      [[ $# -ge 2 ]] || { usage >&2; exit 2; }
      packages+=("$2")
      shift
      ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

say() { echo "setup: $*"; }

# Whether a package is not needed, because the program comes from elsewhere or the directory .deps has the files.
is_met_elsewhere() {
  case $1 in
    g++ | cmake | git | doxygen | gdb) command -v "$1" >/dev/null ;;
    ninja-build) command -v ninja >/dev/null ;;
    clang-*) command -v "clang++-${1#clang-}" >/dev/null ;;
    libfmt-dev) [[ -f $root/.deps/include/fmt/format.h ]] ;;
    libcli11-dev) [[ -f $root/.deps/include/CLI/CLI.hpp ]] ;;
    nlohmann-json3-dev) [[ -f $root/.deps/include/nlohmann/json.hpp ]] ;;
    libmsgpack-cxx-dev) [[ -f $root/.deps/include/msgpack/unpack.hpp ]] ;;
    libgtest-dev) [[ -f $root/.deps/googletest/src/gtest-all.cc ]] ;;
    *) false ;;
  esac
}

is_installed() {
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# Prints the missing ones among the given packages, one per line.
missing_packages() {
  local package
  for package in "$@"; do
    is_installed "$package" || is_met_elsewhere "$package" || echo "$package"
  done
}

# Runs apt-get as root or through sudo; fails without these rights.
apt() {
  if [[ $(id -u) == 0 ]]; then
    env DEBIAN_FRONTEND=noninteractive apt-get "$@"
  else
    sudo -n env DEBIAN_FRONTEND=noninteractive apt-get "$@"
  fi
}

install_packages() {
  local -a missing=("$@")
  local command="apt-get install -y --no-install-recommends ${missing[*]}"
  if $offline_ok; then
    say "skipped (--offline-ok): packages ${missing[*]}"
    return
  fi
  if ! command -v apt-get >/dev/null; then
    say "apt-get was not found: install the contents of these packages, then use --offline-ok: ${missing[*]}" >&2
    exit 1
  fi
  if [[ $(id -u) != 0 ]] && ! { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }; then
    say "packages are missing, and this user may not install them: run" >&2
    echo "  sudo $command" >&2
    exit 1
  fi
  say "installing packages: ${missing[*]}"
  # Fetch the package lists only if they are missing or too old to install from.
  apt install -y --no-install-recommends "${missing[@]}" || {
    say "fetching the package lists, then retrying"
    apt update
    apt install -y --no-install-recommends "${missing[@]}" || {
      say "apt-get failed to install packages: see the lines above, then run: $command" >&2
      exit 1
    }
  }
}

# Installs the given requirements in .venv, unless an earlier call did so or installed more.
make_venv() {
  local name=$1 stamp=$root/.venv/.stamp key
  key="$(cat "$root"/requirements-*.txt | sha256sum) $(python3 --version)"
  if [[ -f $stamp && ($(<"$stamp") == "dev $key" || $(<"$stamp") == "$name $key") ]]; then return; fi
  if $offline_ok; then
    say "skipped (--offline-ok): the Python tools in .venv, which linting and testing need"
    return
  fi
  say "creating .venv with the tools of requirements-$name.txt"
  # Keep an environment of the same versions: the tools include the demo's packages.
  if [[ ! -f $stamp || $(<"$stamp") != *" $key" ]]; then
    rm -rf "$root/.venv"
    python3 -m venv "$root/.venv"
  fi
  rm -f "$stamp"
  "$root/.venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$root/requirements-$name.txt" || {
    say "pip failed to install the tools: see the lines above; without a network, use --offline-ok" >&2
    exit 1
  }
  echo "$name $key" >"$stamp"
}

# Unpacks CPython's own tests of process pools if the interpreter lacks them, as some built from source do. Installing
# the package would install another interpreter too. Tried once for each .venv.
unpack_pool_tests() {
  local folder=$root/.venv/cpython-tests package
  if [[ -d $folder || ! -d $root/.venv ]] || python3 -c "$has_pool_tests" 2>/dev/null; then return; fi
  package=$(tests_package)
  if $offline_ok; then
    say "skipped (--offline-ok): CPython's tests of process pools, from $package"
    return
  fi
  say "unpacking CPython's tests of process pools from $package"
  mkdir "$folder"
  (
    download() { apt-get download -qq -o APT::Sandbox::User=root "$package"; }
    cd "$folder" && { download || { apt update && download; }; } && dpkg-deb -x ./*.deb . && rm ./*.deb
  ) || say "continuing without them: one test is skipped; to retry, run \`rm -r .venv/cpython-tests\`"
}

# Prints the package of Debian and Ubuntu with the tests of the interpreter's version.
tests_package() {
  echo "libpython$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo 3)-testsuite"
}

if $is_demo && ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
  say "continuing without the Python package: it needs Python 3.10 or newer"
  want_venv=false
fi
want_tests=$want_venv
if $is_demo; then want_tests=false; fi
if $want_tests; then packages+=("${tools[@]}"); fi
if $want_venv && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then packages+=(python3-venv); fi
# The Python package is compiled against the headers of the interpreter in .venv.
has_python_headers='import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
if $want_venv && ! python3 -c "$has_python_headers" 2>/dev/null; then packages+=(python3-dev); fi
# CPython's own tests of multiprocessing run with the Python package; Debian packages them separately.
has_python_tests='import importlib.util as u, sys; sys.exit(u.find_spec("test._test_multiprocessing") is None)'
if $want_tests && ! python3 -c "$has_python_tests" 2>/dev/null; then packages+=("$(tests_package)"); fi
has_pool_tests='import importlib.util as u, sys; sys.exit(u.find_spec("test.test_concurrent_futures") is None)'
mapfile -t missing < <(missing_packages "${packages[@]}")
if ((${#missing[@]} > 0)); then install_packages "${missing[@]}"; fi
if $want_peers; then
  mapfile -t missing < <(missing_packages "${peers[@]}")
  # In a subshell, so that a failure does not end this script.
  if ((${#missing[@]} > 0)) && ! (install_packages "${missing[@]}"); then
    say "continuing without ${missing[*]}: benchmarks skip the contenders that need them"
  fi
fi
if $want_tests; then
  make_venv dev
  unpack_pool_tests
elif $want_venv; then
  make_venv build
fi
