# The image of workers and of everything that `forge` does. CPU by default; for GPUs:
#   docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 -t agent-forge:cuda .
FROM python:3.12-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    HF_HUB_DISABLE_PROGRESS_BARS=1 FORGE_HOME=/var/lib/forge

WORKDIR /opt/agent-forge
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY agent_forge agent_forge
COPY api api
COPY cli cli
COPY cognate cognate
COPY events events
COPY evomerge evomerge
COPY worker worker
# torch alone from the index for this kind of machine: the other packages are not there.
RUN pip install --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)" \
 && pip install -c constraints.txt '.[s3,gcs]' \
 && useradd --create-home --uid 10001 forge \
 && install -d -o forge -g forge /var/lib/forge /models

USER forge
VOLUME /var/lib/forge
ENTRYPOINT ["forge"]
CMD ["worker", "--log", "json"]
