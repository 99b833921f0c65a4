#!/usr/bin/env bash
# The flagship's services as plain processes, each started again when it ends, as by systemd or Kubernetes:
#
#   examples/flagship/processes.sh [--set SECTION.KEY=VALUE ...]
#
# Orchestrators find the pools by name, as by the chart's headless Services. Ctrl-C ends all.
set -euo pipefail

folder=$(cd "$(dirname "$0")" && pwd)
pilotfish=("${VENV:-$folder/../../.venv}/bin/python" -m pilotfish.cli)
settings=(--config "$folder/pilotfish.yaml"
  --set 'orchestrator.target_addresses=["dns:///localhost:50061"]'
  --set 'orchestrator.draft_addresses=["dns:///localhost:50062"]' "$@")

keep() {
  local child
  trap 'kill "$child" 2>/dev/null; wait "$child"; exit' TERM
  while true; do
    "${pilotfish[@]}" service "$1" "${settings[@]}" & child=$!
    wait "$child" || true
    sleep 1
  done
}

for role in target draft orchestrator; do keep "$role" & done
trap 'trap - INT TERM; kill $(jobs -p); wait' INT TERM
wait
