#!/usr/bin/env bash
# Whether an installed rankscope works: packaging/try.sh COMMAND...
# It reads sample data, names the rank, ends with the exit codes of the docs, and tells how it does on this machine.
set -euo pipefail
[[ $# -gt 0 && $1 != --help ]] || { sed -n '2,3s/^# //p' "$0"; exit $((!$#)); }
samples=$(cd "$(dirname "$0")/../sample_data" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# a program beside this folder is still found from another one
program=$(command -v "$1")
[[ $program = /* ]] || program=$PWD/$program
shift
cd "$scratch"

ends_with() {
  local expected=$1 code=0
  shift
  "$@" >said.txt 2>errors.txt || code=$?
  test "$code" -eq "$expected" || { echo "exit code $code, not $expected: $*"; cat said.txt errors.txt; exit 1; }
}

ends_with 1 "$program" "$@" report "$samples/two_groups"
head -1 said.txt
grep -q '^HANG: rank 3 never issued all_reduce #10 of tensor_parallel' said.txt
ends_with 0 "$program" "$@" report "$samples/healthy"
ends_with 2 "$program" "$@" report "$samples/nothing"
ends_with 0 "$program" "$@" doctor "$samples"
ends_with 0 "$program" "$@" completion bash
