# syntax=docker/dockerfile:1.7
# One image for every role, or a small one for the orchestrator; docs/image.md says how to build and run it.
#
#   docker build -t pilotfish:0.2.0 .                                     for NVIDIA GPUs
#   docker build -t pilotfish:0.2.0-cpu --build-arg ACCELERATOR=cpu .     for machines without
#   docker build -t pilotfish:0.2.0-router --build-arg ACCELERATOR=cpu --build-arg ROLE=router .
#                                                                         the orchestrator alone: no torch, no Ray
#
# What computes comes from requirements.lock, CUDA's libraries included, and the driver from the container runtime: the
# base is Debian 12, or what else has Python 3.11 and glibc 2.36 (pin yours by digest).

ARG BASE=debian:bookworm-slim

# --- The packages, compiled kernels included.
FROM ${BASE} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# Of whatever patch level the base has: nothing of it stays in the image.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates g++ python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY docker/build-requirements.txt ./
ENV PATH=/opt/build/bin:$PATH
RUN python3 -m venv /opt/build \
    && pip install --no-cache-dir --require-hashes --requirement build-requirements.txt

# Behind a mirror whose authority the base knows, uv should as well.
ENV UV_SYSTEM_CERTS=true \
    UV_PYTHON_DOWNLOADS=never \
    UV_LINK_MODE=copy \
    UV_COMPILE_BYTECODE=1 \
    VIRTUAL_ENV=/opt/pilotfish
RUN uv venv --python /usr/bin/python3 "${VIRTUAL_ENV}"

# The dependencies before the sources: they change less often. A torch without CUDA has an index of its own; where none
# is given, an image for CPUs carries CUDA's libraries unused.
ARG ACCELERATOR=cuda
ARG TORCH_CPU_INDEX=""
ARG TORCH_CPU_SHA256=""
ARG ROLE=all
COPY requirements.lock docker/router-requirements.txt scripts/cpu_requirements.py ./
RUN --mount=type=cache,target=/root/.cache/uv \
    if [ "${ROLE}" = router ]; then \
      uv pip install --no-deps --require-hashes --requirements router-requirements.txt; \
    elif [ "${ACCELERATOR}" = cpu ] && [ -n "${TORCH_CPU_INDEX}" ]; then \
      python cpu_requirements.py requirements.lock --torch-sha256 "${TORCH_CPU_SHA256}" --torch torch.txt --rest rest.txt; \
      uv pip install --no-deps --require-hashes --default-index "${TORCH_CPU_INDEX}" --requirements torch.txt; \
      uv pip install --no-deps --require-hashes --requirements rest.txt; \
    else \
      uv pip install --no-deps --require-hashes --requirements requirements.lock; \
    fi

COPY pyproject.toml README.md LICENSE ./
COPY models models
COPY pilotfish pilotfish
COPY draft_service draft_service
COPY target_service target_service
COPY orchestrator orchestrator
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
    && uv pip install --no-deps dist/*.whl
# Elsewhere, so that the installed packages run and not the sources.
WORKDIR /
RUN if [ "${ROLE}" != router ]; then "${VIRTUAL_ENV}/bin/python" -m pilotfish.models.native.build; fi \
    && "${VIRTUAL_ENV}/bin/pilotfish" --version

# --- What runs.
FROM ${BASE} AS runtime
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ARG VERSION=0.2.0
LABEL org.opencontainers.image.title="Pilotfish" \
      org.opencontainers.image.description="Lossless speculative decoding whose drafter lives on its own machines" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# wget and bash are for KubeRay's probes. For GPUs Triton and torch.compile make their kernels when a replica starts:
# with a C compiler, against the headers of libc and Python.
ARG ACCELERATOR=cuda
# hadolint ignore=DL3008,SC2086
RUN if [ "${ACCELERATOR}" = cuda ]; then compiler="gcc libc6-dev libpython3-dev"; fi \
    && apt-get update \
    && apt-get install --yes --no-install-recommends bash ca-certificates libstdc++6 python3 tini wget ${compiler:-} \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 pilotfish \
    && useradd --uid 10001 --gid 10001 --home-dir /var/cache/pilotfish --no-create-home --shell /bin/bash pilotfish \
    && install --directory --owner=10001 --group=10001 --mode=0755 \
       /var/cache/pilotfish /var/lib/pilotfish /var/lib/pilotfish/links \
    && echo "PATH=/opt/pilotfish/bin:\$PATH" > /etc/profile.d/pilotfish.sh
COPY --from=build /opt/pilotfish /opt/pilotfish
COPY docker/pilotfish.yaml /etc/pilotfish/pilotfish.yaml

# All that is written goes below the cache or into /tmp: the rest may be read-only.
ENV PATH=/opt/pilotfish/bin:$PATH \
    HOME=/var/cache/pilotfish \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PILOTFISH_CACHE=/var/cache/pilotfish \
    PILOTFISH_CONFIG=/etc/pilotfish/pilotfish.yaml \
    PILOTFISH_ROLE=orchestrator \
    RAY_USAGE_STATS_ENABLED=0 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /var/lib/pilotfish
VOLUME ["/var/cache/pilotfish"]
EXPOSE 50051 8000 50061 50062
USER 10001:10001
STOPSIGNAL SIGTERM
# Of the role that PILOTFISH_ROLE names.
HEALTHCHECK --interval=30s --timeout=15s --start-period=15m --retries=3 CMD ["pilotfish", "health"]
ENTRYPOINT ["tini", "--", "pilotfish"]
CMD ["service"]
