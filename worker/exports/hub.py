"""Upload of an export to a Hugging Face Hub: one commit in a repository of its own.

The token is that of HF_TOKEN or of the file that `hf auth login` writes; it is sent to the endpoint
(HF_ENDPOINT, or huggingface.co) and stands in no message. Large files go first, one by one, and a file
that has arrived is not sent again; the commit comes last. So an interrupted upload leaves no half
repository, and the same command continues it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent_forge.runs.errors import ConfigError, ConflictError, UnavailableError

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

#: Where models go if HF_ENDPOINT does not say.
USUAL = "https://huggingface.co"
#: Files that a Hub adds to a repository by itself.
ITS_OWN = frozenset({".gitattributes"})
_NAME = re.compile(r"(?!.*(--|\.\.))[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_STATUS = {
    401: "does not accept the token: make a new one, and set HF_TOKEN",
    403: "does not let this token write there: it needs the right to write to that owner",
    404: "does not find it",
    413: "does not take so much",
    429: "takes no more requests for now: wait some minutes",
}


@dataclass(frozen=True)
class HubTarget:
    """A repository to upload to."""

    repository: str
    public: bool
    endpoint: str
    token: str = field(repr=False)


def target(repository: str, public: bool) -> HubTarget:
    """Return an upload's HubTarget: repository, `public`, endpoint, token. Raises ConfigError."""
    from huggingface_hub import constants

    if not _NAME.fullmatch(repository) or repository.endswith((".", "-", ".git")):
        raise ConfigError(f"--push {repository!r} is not OWNER/NAME, as in --push me/my-model.")
    if constants.HF_HUB_OFFLINE:
        raise ConfigError("HF_HUB_OFFLINE is set: nothing can be uploaded. Unset it, or leave --push.")
    endpoint = (os.environ.get("HF_ENDPOINT") or USUAL).rstrip("/")
    parts = urlsplit(endpoint)
    here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or parts.scheme not in ("http", "https"):
        raise ConfigError("HF_ENDPOINT is no URL, as in https://huggingface.co.")
    if parts.scheme == "http" and not here:
        raise ConfigError(f"HF_ENDPOINT is http://{parts.hostname}: the token would go in clear text.")
    return HubTarget(repository, public, endpoint, _token())


def _token() -> str:
    """Return the text of the user's token. Raises ConfigError if none can be sent."""
    from huggingface_hub import constants

    token, where = os.environ.get("HF_TOKEN", "").strip(), "HF_TOKEN"
    if not token:
        where = constants.HF_TOKEN_PATH
        try:
            token = Path(where).read_text("utf-8").strip()
        except FileNotFoundError:
            token = ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the Hub's token in {where} cannot be read.") from error
    if not token:
        raise ConfigError(
            "--push needs a token of the Hub with the right to write: set HF_TOKEN, or `hf auth login`."
        )
    if not re.fullmatch(r"[\x21-\x7e]{1,1000}", token):
        raise ConfigError(f"{where} holds no token: a token is one word of plain letters.")
    return token


def files_of(place: Path) -> dict[str, Path]:
    """Return name in the repository → file, of a folder without hidden files, or of one file."""
    if place.is_file():
        return {place.name: place}
    files = sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    names = {path.relative_to(place).as_posix(): path for path in files}
    return {name: path for name, path in names.items() if not re.search(r"(^|/)\.", name)}


def send(to: HubTarget, files: Mapping[str, Path], place: Path) -> dict[str, object]:
    """Upload files in one commit; return repository, URL, commit and visibility as JSON data.

    The repository is made if it is missing, private unless `to.public`. Raises ConflictError if it has
    other files or another visibility, UnavailableError if the Hub cannot be reached or refuses; `place`
    is where the export stays then.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(endpoint=to.endpoint, token=to.token)
    with _explained(to, place):
        _prepare(api, to, files)
        added = [CommitOperationAdd(name, str(file)) for name, file in files.items()]
        done = api.create_commit(
            to.repository, added, commit_message="Upload by forge export", repo_type="model"
        )
    return {
        "repository": to.repository,
        "url": f"{to.endpoint}/{to.repository}",
        "commit": done.oid,
        "private": not to.public,
    }


def _prepare(api: HfApi, to: HubTarget, files: Mapping[str, Path]) -> None:
    """Create the repository; or raise ConflictError if one is there that cannot be written to."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        there = api.model_info(to.repository)
    except RepositoryNotFoundError as error:
        if error.response.status_code != 404:
            raise
        api.create_repo(to.repository, private=not to.public, repo_type="model")
        return
    if bool(there.private) == to.public:
        visibility, preposition = ("private", "without") if to.public else ("public", "with")
        raise ConflictError(
            f"{to.repository} is there and {visibility}: repeat the command {preposition} "
            "--public, or choose "
            "another name."
        )
    other_files = {sibling.rfilename for sibling in there.siblings or ()} - set(files) - ITS_OWN
    if other_files:
        raise ConflictError(
            f"{to.repository} is there with other files, such as {min(other_files)}: choose "
            "another name."
        )


@contextmanager
def _explained(to: HubTarget, place: Path) -> Iterator[None]:
    """Wrap a block: errors of the Hub and network become one that says what to do, without token."""
    from huggingface_hub import errors

    failed = errors.HTTPError  # pyright: ignore[reportPrivateImportUsage] - of its HTTP library
    again = f"The export is whole in {place}; what has arrived is not sent again by the same command."
    try:
        yield
    except errors.HfHubHTTPError as error:
        raise _refused(to, error, again) from None
    except (failed, OSError, RuntimeError, ValueError) as error:
        cause = error.__cause__ if isinstance(error, RuntimeError) else None
        if isinstance(cause, errors.HfHubHTTPError):
            raise _refused(to, cause, again) from None
        why = str(cause or error).replace(to.token, "…").splitlines()
        raise UnavailableError(
            f"{to.repository} was not uploaded to {to.endpoint}: {why[0] if why else error!r}. {again}"
        ) from None


def _refused(to: HubTarget, error: HfHubHTTPError, again: str) -> UnavailableError:
    """Return the error for an answer of the Hub that refuses the upload."""
    status = error.response.status_code
    lines = str(error.server_message or "").replace(to.token, "…").splitlines()
    what = _STATUS.get(status, "cannot do that now" if status >= 500 else "refuses")
    more = f" ({lines[0][:200]})" if lines else ""
    return UnavailableError(
        f"{to.repository} was not uploaded: {to.endpoint} answers {status}{more}; it {what}. {again}"
    )
