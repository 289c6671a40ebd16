#!/bin/sh
# Has NVIDIA's compute-sanitizer watch parts of the GPU's self test: every access to memory, then every race in shared memory.
# Kernels run tens of times slower under it, so each tool gets SECONDS_EACH seconds (60 unless set): what it had found by then
# is told. PARTS names the parts of the self test (large unless set), KERNELS limits it to kernels with that in their names,
# such as KERNELS=epilogue. Exit code 0: nothing was found; 1: something was; 2: it could not be run.
#
#     benches/sanitize.sh target/release/ftprop cuda:0
#     PARTS=products,large KERNELS=patch benches/sanitize.sh
set -u
program=${1:-target/release/ftprop}
device=${2:-cuda:0}
parts=${PARTS:-large}
seconds=${SECONDS_EACH:-60}
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer /opt/cuda/bin/compute-sanitizer 2> /dev/null | head -n 1)
if [ -z "$sanitizer" ]; then
    echo "compute-sanitizer is not installed here: it comes with the CUDA toolkit (package cuda-sanitizer)"
    exit 2
fi
report=$(mktemp)
trap 'rm -f "$report"' EXIT
# Once without it, so that what is compiled and timed is kept.
if ! timeout 300 "$program" selftest --device "$device" --part "$parts" > "$report" 2>&1; then
    echo "the self test fails by itself:"
    tail -n 5 "$report"
    exit 2
fi
found=0
for tool in memcheck racecheck; do
    status=0
    timeout -k 5 "$seconds" "$sanitizer" --tool "$tool" --error-exitcode 9 ${KERNELS:+--kernel-regex "kns=$KERNELS"} \
        "$program" selftest --device "$device" --part "$parts" > "$report" 2>&1 || status=$?
    checks=$(grep -c '^ok  ' "$report")
    case $status in
        0) echo "$tool: nothing found, $checks checks" ;;
        124 | 137) echo "$tool: stopped after $seconds s and $checks checks" ;;
        *) echo "$tool: exit $status after $checks checks" ;;
    esac
    # What it says about a kernel begins so; what is not about one is its own greeting or total.
    if grep -qE '^========= (Invalid|Error|ERROR: |Warning: Race|Race|Potential|Program hit)' "$report"; then
        found=1
    fi
    grep -E '^=========' "$report" | grep -v COMPUTE-SANITIZER | head -n 20
done
exit $found
