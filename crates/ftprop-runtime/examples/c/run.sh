#!/bin/sh
# Builds the static library and the C example, runs it on a small model, and compares with what Rust says.
set -eu
cd "$(dirname "$0")/../../../.."
target=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo rustc --quiet --release -p ftprop-runtime --lib --crate-type staticlib
cargo run --quiet --release -p ftprop-runtime --example demo_model -- "$work/demo.ftp" "$work/images" > "$work/expected"
"${CC:-cc}" -std=c99 -Wall -Wextra -Werror -O2 -I crates/ftprop-runtime/include \
    crates/ftprop-runtime/examples/c/classify.c "$target/release/libftprop_runtime.a" -lpthread -ldl -lm \
    -o "$work/classify"
"$work/classify" "$work/demo.ftp" "$work/images" | tee "$work/found"
cmp "$work/expected" "$work/found"
head -c 1000 "$work/demo.ftp" > "$work/cut.ftp"
if "$work/classify" "$work/cut.ftp" "$work/images"; then
    echo "a damaged model was loaded" >&2
    exit 1
fi
echo "the C example agrees with Rust"
