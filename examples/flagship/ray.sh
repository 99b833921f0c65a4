#!/usr/bin/env bash
# The flagship on a Ray cluster of one node, which says that it has four GPUs and both pools' places:
#
#   examples/flagship/ray.sh [--set SECTION.KEY=VALUE ...]
#
# The target's ranks lie in a placement group, with a GPU each. Ctrl-C ends the cluster.
set -euo pipefail

folder=$(cd "$(dirname "$0")" && pwd)
bin=${VENV:-$folder/../../.venv}/bin
files=$(mktemp --directory /tmp/pf-XXXXXX)   # a short name: Ray puts Unix sockets there
dashboard=${DASHBOARD_PORT:-8265}
# Ray takes the machine's address for 127.0.0.1. Of its workers' niceness, 15, other processes would take the time.
export RAY_TMPDIR=$files RAY_worker_niceness=0 RAY_USAGE_STATS_ENABLED=0
"$bin/ray" start --head --block --node-ip-address 127.0.0.2 --port "${RAY_PORT:-6379}" --temp-dir "$files" \
  --dashboard-port "$dashboard" --num-cpus 4 --num-gpus 4 --resources '{"target_pool": 1, "draft_pool": 1}' &
cluster=$!
end() {
  trap - INT TERM
  "$bin/serve" shutdown --yes --address "http://127.0.0.1:$dashboard" || true
  kill "$cluster" 2>/dev/null
  wait "$cluster" || true
  rm --recursive --force "$files"
}
trap end EXIT

"$bin/python" -m pilotfish.cli config --serve --config "$folder/pilotfish.yaml" "$@" > "$files/serve.yaml"
until "$bin/serve" deploy "$files/serve.yaml" --address "http://127.0.0.1:$dashboard"; do
  kill -0 "$cluster" || exit 1   # Ray has said why
  sleep 2
done
wait "$cluster"
