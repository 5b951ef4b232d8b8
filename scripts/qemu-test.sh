#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
#
# For any CI: builds messung.ko for a stock kernel, boots that in QEMU, judges, and leaves all artefacts in one folder.

set -euo pipefail

usage() {
	cat <<'END'
Usage: scripts/qemu-test.sh [ROW] [OUT-DIR]

Measures the kernel ROW (amd64 unless named; `cargo xtask build --help` tells more)
in a virtual machine, in virtual time, and leaves in OUT-DIR (qemu-test/ROW unless named):
  report.txt      the table of measured delays, which is printed as well
  result.json     the same for programs
  kernel.log      the kernel's log, complete
  console.log     what the serial console showed
  commands.txt    each command that was run, ready to paste

Exit status: 0 measured, 1 could not measure, 2 wrong usage, 4 the kernel crashed, 5 timed out,
130 interrupted.
END
}

case "${1-}" in
-h | --help)
	usage
	exit 0
	;;
esac
if [ $# -gt 2 ]; then
	usage >&2
	exit 2
fi
case "${1-}" in
-*)
	echo "qemu-test.sh: no such option: $1" >&2
	usage >&2
	exit 2
	;;
esac

row=${1:-amd64}
out=${2:-qemu-test/$row}
mkdir -p -- "$out"
# cargo looks for its configuration from the current folder upwards.
out=$(cd -- "$out" && pwd)
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# pipefail: the status is xtask's unless tee failed.
status=0
cargo xtask vm --kernel "$row" --output "$out" | tee -- "$out/report.txt" || status=$?
# Nothing was measured: no report, neither an empty one nor an earlier one; and no empty folder.
if [ ! -s "$out/report.txt" ]; then
	rm -f -- "$out/report.txt"
	rmdir --ignore-fail-on-non-empty -- "$out"
fi
exit "$status"
