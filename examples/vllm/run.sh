#!/usr/bin/env bash
# A draft service of this repository, and vLLM (CPU) in an environment of its own whose drafts it makes:
#
#   examples/vllm/run.sh VLLM_ENVIRONMENT [PROMPT]
#
# VLLM_ENVIRONMENT is a virtual environment with vllm-cpu 0.32.0: benchmarks/peers/setup.sh vllm makes /tmp/peers/vllm.
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
vllm=$1
prompt=${2:-Repeat after me: the quick brown fox jumps over the lazy dog.}
root=$(cd "$(dirname "$0")/../.." && pwd)
model=${MODEL:-${PILOTFISH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pilotfish}/models/smollm2-135m-instruct}
port=${DRAFT_PORT:-50062}

"$root/.venv/bin/python" -m draft_service --set draft.proposer=suffix --set draft.model="$model" \
  --set draft.port="$port" --set draft.lookup_min_probability=0.03 &
draft=$!
trap 'kill "$draft" 2>/dev/null; wait "$draft" 2>/dev/null || true' EXIT

# On the path instead of `pip install 'pilotfish[client]'`: this environment has what the client needs.
PYTHONPATH=$root VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 \
PILOTFISH_VLLM_DRAFT_ADDRESSES=127.0.0.1:$port \
  "$vllm/bin/python" "$root/examples/vllm/generate.py" "$model" "$prompt"
