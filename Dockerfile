# syntax=docker/dockerfile:1.7
# One image for every role, or a small one for the orchestrator; docs/image.md says how to build and run it.
#
#   docker build -t pilotfish:0.1.0 .                                     for NVIDIA GPUs
#   docker build -t pilotfish:0.1.0-cpu --build-arg ACCELERATOR=cpu .     for machines without
#   docker build -t pilotfish:0.1.0-router --build-arg ACCELERATOR=cpu --build-arg ROLE=router .
#                                                                         the orchestrator alone: no torch, no Ray
#
# What computes comes from requirements.lock, CUDA's libraries included: of a GPU's base only the driver's
# compatibility libraries are used, so either base may be any glibc 2.36 or newer (pin yours by digest).

ARG ACCELERATOR=cuda
ARG BUILD_BASE=python:3.11-slim-bookworm
ARG CPU_BASE=debian:bookworm-slim
ARG CUDA_BASE=nvidia/cuda:13.0.2-base-ubuntu24.04

# --- Python and the packages, compiled kernels included: no later stage has a compiler.
FROM ${BUILD_BASE} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# Of whatever patch level the base has: nothing of it stays in the image.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY docker/build-requirements.txt ./
RUN pip install --no-cache-dir --require-hashes --requirement build-requirements.txt

# A Python that needs nothing of its base, so that both bases take the same.
ARG PYTHON_VERSION=3.11
ENV UV_PYTHON_INSTALL_DIR=/opt/python \
    UV_PYTHON_PREFERENCE=only-managed \
    UV_LINK_MODE=copy \
    UV_COMPILE_BYTECODE=1 \
    VIRTUAL_ENV=/opt/pilotfish
RUN uv python install "${PYTHON_VERSION}" \
    && uv venv --python "${PYTHON_VERSION}" "${VIRTUAL_ENV}"

# The dependencies before the sources: they change less often. A torch without CUDA has an index of its own; where none
# is given, an image for CPUs carries CUDA's libraries unused.
ARG ACCELERATOR
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
FROM ${CPU_BASE} AS base-cpu

FROM ${CUDA_BASE} AS base-cuda
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# hadolint ignore=DL3006
FROM base-${ACCELERATOR} AS runtime
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Pilotfish" \
      org.opencontainers.image.description="Lossless speculative decoding whose drafter lives on its own machines" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# wget and bash are for KubeRay's probes. EXTRA_PACKAGES: such as `gcc libc6-dev`, for what compiles at run time.
ARG EXTRA_PACKAGES=""
# hadolint ignore=DL3008,SC2086
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bash ca-certificates libstdc++6 tini wget ${EXTRA_PACKAGES} \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 pilotfish \
    && useradd --uid 10001 --gid 10001 --home-dir /var/cache/pilotfish --no-create-home --shell /bin/bash pilotfish \
    && install --directory --owner=10001 --group=10001 --mode=0755 \
       /var/cache/pilotfish /var/lib/pilotfish /var/lib/pilotfish/links \
    && echo "PATH=/opt/pilotfish/bin:\$PATH" > /etc/profile.d/pilotfish.sh
COPY --from=build /opt/python /opt/python
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
    RAY_USAGE_STATS_ENABLED=0
WORKDIR /var/lib/pilotfish
VOLUME ["/var/cache/pilotfish"]
EXPOSE 50051 8000 50061 50062
USER 10001:10001
STOPSIGNAL SIGTERM
# Of the role that PILOTFISH_ROLE names.
HEALTHCHECK --interval=30s --timeout=15s --start-period=15m --retries=3 CMD ["pilotfish", "health"]
ENTRYPOINT ["tini", "--", "pilotfish"]
CMD ["service"]
