# The image of workers and of everything that `forge` does. CPU by default; for GPUs:
#   docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 -t agent-forge:cuda .
#
# Every package but torch is checked against the hashes of requirements.lock (`make lock`), which is tried with this Python.
# Pin the base by its digest, as `docker buildx imagetools inspect python:3.11-slim` shows it today:
#   --build-arg PYTHON_IMAGE=python:3.11-slim@sha256:…
ARG PYTHON_IMAGE=python:3.11-slim
FROM ${PYTHON_IMAGE}

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Of torch's wheel, which is another for each index; without it torch is taken as the index gives it, over TLS.
#   pip download --no-deps --index-url INDEX torch==VERSION && sha256sum torch-*.whl
ARG TORCH_SHA256=
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    HF_HUB_DISABLE_PROGRESS_BARS=1 FORGE_HOME=/var/lib/forge XDG_CACHE_HOME=/var/lib/forge/cache \
    HF_HOME=/var/lib/forge/cache/huggingface MPLCONFIGDIR=/var/lib/forge/cache/matplotlib

WORKDIR /opt/agent-forge
# The commit that `forge --version` says: --build-arg FORGE_COMMIT=$(git rev-parse --short=12 HEAD)
ARG FORGE_COMMIT=
COPY requirements.lock constraints.txt pyproject.toml setup.py README.md LICENSE ./
COPY agent_forge agent_forge
COPY api api
COPY cli cli
COPY evaluation evaluation
COPY events events
COPY evomerge evomerge
COPY phases phases
COPY pipeline pipeline
COPY runs runs
COPY search search
COPY studies studies
COPY tools tools
COPY weights weights
COPY worker worker
# torch alone from the index for this kind of machine: the other packages are not there. For GPUs it brings CUDA's.
RUN set -eu; pip install --require-hashes -r requirements.lock; \
    torch="$(grep '^torch==' constraints.txt)"; \
    if [ -n "$TORCH_SHA256" ]; then \
      echo "$torch --hash=sha256:$TORCH_SHA256" > /tmp/torch.txt; \
      pip install --no-deps --require-hashes --index-url "$TORCH_INDEX" -r /tmp/torch.txt; \
    else pip install --index-url "$TORCH_INDEX" "$torch"; fi; \
    pip install --no-deps --no-index --no-build-isolation .; \
    rm -f /tmp/torch.txt; \
    useradd --create-home --uid 10001 forge; \
    install -d -m 0700 -o forge -g forge /var/lib/forge; install -d -o forge -g forge /models

USER forge
VOLUME /var/lib/forge
ENTRYPOINT ["forge"]
CMD ["worker", "--log", "json"]
