"""Environment variables of child processes: those that the child needs, without unneeded secrets.

    scorer   a scorer of the user: what any Python program needs, and what
             FORGE_SCORER_ENVIRONMENT names
    task     a reader or judge of lm-evaluation-harness tasks: as a scorer, and what fetching from
             the Hub needs; the Hub's token only if the Hub may be asked
    device   a device's process, which runs this program's code: all but secrets that it does not use
    reader   a process of this program that reads foreign models and data: as a device, without the
             secrets of the log and the artifact store

Scorers and tasks are foreign code, so they get an allow-list: an unforeseen secret is not on the
list. Processes of this program get a deny-list: numerical code and the libraries of stores read
variables that cannot be listed, and a missing variable could change the last bit of a result.

An environment is no wall. Scorers run with the user's rights and can read what the user can read.
Programs that models write run in the sandbox, which gets none of this program's variables.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal

Kind = Literal["scorer", "task", "device", "reader"]

#: Names of further variables that scorers and tasks get, separated by spaces.
FURTHER = "FORGE_SCORER_ENVIRONMENT"

#: What a Python program needs to start, to find its files and to compute; no secret has such a name.
PROGRAM = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "TEMP",
    "TMP",
    "TERM",
    "NO_COLOR",
    "XDG_*",
    "PYTHON*",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "DYLD_*",
    "NLTK_DATA",
    "COVERAGE_*",
    "COV_CORE_*",
    "OMP_*",
    "GOMP_*",
    "KMP_*",
    "MKL_*",
    "OPENBLAS_*",
    "NUMBA_*",
    "NUMEXPR_*",
    "MALLOC_*",
    "CUDA_*",
    "NVIDIA_*",
    "TORCH_*",
    "PYTORCH_*",
    "TRITON_*",
    "TOKENIZERS_*",
    "TRANSFORMERS_*",
    "FORGE_THREADS",
)
#: What fetching data from the Hub needs besides, and the variables that allow a task's file.
HUB = (
    "HF_*",
    "HUGGING_FACE_HUB_*",
    "HUGGINGFACE_*",
    "SSL_CERT_*",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "*_PROXY",
    "*_proxy",
    "FORGE_TASK_FOLDERS",
    "FORGE_WORKER",
)
#: Variables in which libraries look for the Hub's token.
TOKENS = (
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HF_API_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HUGGINGFACE_*TOKEN",
    "HUGGINGFACE_*KEY",
)
#: Variables that keep libraries from the Hub, and from a token that `hf auth login` has left.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_TOKEN_PATH": "/dev/null",
}
#: Secrets that a device's process does not use: the process rings no doorbell and asks no endpoint.
NOT_A_DEVICE_S = ("FORGE_BROKER_URL", "FORGE_ENDPOINT_KEY", "WANDB_API_KEY")
#: The same, and the secrets that a process which only reads does not use.
NOT_A_READER_S = (
    *NOT_A_DEVICE_S,
    "FORGE_DATABASE_URL",
    "FORGE_ARTIFACT_*",
    "PGPASS*",
    "AWS_*",
    "GOOGLE_*",
    "AZURE_*",
)


def child_environment(
    kind: Kind, environment: Mapping[str, str] | None = None, hub: bool = True
) -> dict[str, str]:
    """Return the variables that a child of this kind gets of `environment` (None: this process's).

    Without `hub`, or if HF_HUB_OFFLINE forbids the Hub, a child gets no token and asks no Hub. A
    scorer's environment is not changed by either.
    """
    variables = os.environ if environment is None else environment
    if kind in ("device", "reader"):
        denied = NOT_A_DEVICE_S if kind == "device" else NOT_A_READER_S
        child_variables = {
            name: value for name, value in variables.items() if not _matches(name, denied)
        }
    else:
        allowed = [*PROGRAM, *(HUB if kind == "task" else ()), *variables.get(FURTHER, "").split()]
        child_variables = {name: value for name, value in variables.items() if _matches(name, allowed)}
    if kind == "scorer" or (hub and may_ask_hub(variables)):
        return child_variables
    return {
        name: value for name, value in child_variables.items() if not _matches(name, TOKENS)
    } | OFFLINE


def may_ask_hub(environment: Mapping[str, str]) -> bool:
    """Return True unless HF_HUB_OFFLINE says that the Hub is not to be asked."""
    return environment.get("HF_HUB_OFFLINE", "").upper() not in ("1", "ON", "YES", "TRUE")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
