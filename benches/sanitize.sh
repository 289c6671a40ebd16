#!/bin/sh
# Has NVIDIA's compute-sanitizer watch the GPU's self test: every access to memory, then every race in shared memory. Takes
# long: kernels run tens of times slower. KERNELS limits it to those with that in their names, such as KERNELS=epilogue.
#
#     benches/sanitize.sh target/release/ftprop cuda:0
set -eu
program=${1:-target/release/ftprop}
device=${2:-cuda:0}
report=$(mktemp)
trap 'rm -f "$report"' EXIT
# Once without it, so that what is compiled and timed is kept.
"$program" selftest --device "$device" > /dev/null
for tool in memcheck racecheck; do
    status=0
    # shellcheck disable=SC2086
    compute-sanitizer --tool "$tool" --error-exitcode 9 ${KERNELS:+--kernel-regex kns=$KERNELS} \
        "$program" selftest --device "$device" > "$report" 2>&1 || status=$?
    echo "$tool: exit $status"
    grep -E '^=========|passed' "$report" | tail -n 20
    [ "$status" -eq 0 ]
done
