#!/bin/sh
# Collect, in the folder $1, the wheels that a machine with a GPU but without a network lacks to run benchmarks/gpu.py,
# benchmarks/gpu_pools.py and `pytest tests/gpu`. Expected there: Linux x86-64, Python 3.12, torch, transformers, NumPy,
# pytest with its plugins xdist and timeout, and Hypothesis. Versions are those of constraints.txt. PYTHON: whose pip
# downloads them.
set -eu
folder=${1:?usage: benchmarks/gpu_wheels.sh FOLDER}
platforms=
for tag in manylinux_2_34 manylinux_2_31 manylinux_2_28 manylinux_2_17 manylinux2014 manylinux1; do
    platforms="$platforms --platform ${tag}_x86_64"
done
# shellcheck disable=SC2086 -- several options
"${PYTHON:-python3}" -m pip download --quiet --no-deps --only-binary=:all: --implementation cp --python-version 3.12 \
    $platforms --constraint "$(dirname "$0")/../constraints.txt" --dest "$folder" \
    annotated-doc annotated-types anyio certifi charset-normalizer click gguf googleapis-common-protos grpcio \
    grpcio-health-checking grpcio-reflection h11 httptools idna jsonschema jsonschema-specifications llguidance markdown-it-py mdurl msgspec \
    opentelemetry-api opentelemetry-exporter-http-transport opentelemetry-exporter-otlp-common \
    opentelemetry-exporter-otlp-proto-common opentelemetry-exporter-otlp-proto-grpc \
    opentelemetry-exporter-otlp-proto-http opentelemetry-proto \
    opentelemetry-sdk opentelemetry-semantic-conventions packaging prometheus-client protobuf psutil pydantic \
    pydantic-core pygments pytest-asyncio referencing requests rich rpds-py shellingham starlette typer typing-extensions \
    typing-inspection urllib3 uvicorn uvloop
du -sh "$folder"
echo "There: python3 -m pip install --no-index --no-deps --target /tmp/site $folder/*.whl"
echo "       export PYTHONPATH=/tmp/site"
