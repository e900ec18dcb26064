"""Downloads a model of the hub into the store, going on where a broken download ended. It decides no layout: the
library does, whose HF_HOME, HF_TOKEN and HF_ENDPOINT it follows. It is imported when something is pulled."""

from __future__ import annotations

import errno
import hashlib
import io
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Final, cast

from gristmill.hub.names import HubError, HubName
from gristmill.hub.store import Stored, repo_folder, set_main, store_folder
from gristmill.hub.variants import Variant, choose, variants

Report = Callable[[int, int], None]
"""Called with (bytes that are there, bytes in all)."""

_ETAG: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class _Remote:
    """A file on the hub.

    sha256   of its content, where the hub says it, as it does of large files
    blob_id  git's SHA-1 of the others' content and its length, where the hub says it
    """

    repo: str
    revision: str
    path: str
    n_bytes: int
    sha256: str | None
    blob_id: str | None

    @property
    def link(self) -> Path:
        return repo_folder(self.repo) / "snapshots" / self.revision / self.path


def pull(name: HubName, report: Report = lambda done, total: None) -> Stored:
    """Download the model that `name` means, as far as it is not there. Until it is whole, the store shows none of it.

    Raises HubError, and OSError of the disk; what has come stays, and the next pull goes on from there.
    """
    with _explained(name):
        variant, files = _list(name)
        missing = [file for file in files if not file.link.exists()]
        _check_space(name.repo, missing)
        total = sum(file.n_bytes for file in files)
        done = total - sum(file.n_bytes for file in missing)
        report(done, total)
        for file in missing:
            base = done
            _fetch(file, lambda n, base=base: report(base + n, total))  # type: ignore[misc]
            done += file.n_bytes
            report(done, total)
        set_main(name.repo, files[0].revision)
    return Stored(name.repo, repo_folder(name.repo) / "snapshots" / files[0].revision, variant)


def _list(name: HubName) -> tuple[Variant, list[_Remote]]:
    """The model that `name` means, and its files."""
    from huggingface_hub import HfApi, constants, get_token

    token = get_token() or ""
    if not token.isascii() or not token.isprintable():
        raise HubError(f"{name}: HF_TOKEN holds a character that is in no token; copy the token again")
    try:
        info = HfApi().model_info(name.repo, files_metadata=True)
    except (JSONDecodeError, AttributeError, KeyError, TypeError) as error:  # a page, or JSON of another kind
        raise HubError(
            f"{name}: {constants.ENDPOINT} answers, and not as a hub does; check HF_ENDPOINT and the network"
        ) from error
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    chosen = choose(name, variants(siblings), constants.ENDPOINT)
    found = [siblings[path] for path in chosen.files]
    if not info.sha:
        raise HubError(f"{name}: {constants.ENDPOINT} names no revision; check HF_ENDPOINT")
    return chosen, [
        _Remote(name.repo, info.sha, s.rfilename, s.size or 0, s.lfs.sha256 if s.lfs is not None else None, s.blob_id)
        for s in found
    ]


def _fetch(file: _Remote, report: Callable[[int], None]) -> None:
    """One file into its place, whole and checked, or an error and the beginning of it, to go on from."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.file_download import are_symlinks_supported, http_get
    from huggingface_hub.utils import WeakFileLock, build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(file.repo, file.path, revision=file.revision)
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}  # so that a range is one of the file itself
    meta = get_hf_file_metadata(url, headers=headers)
    if meta.etag is None or not _ETAG.fullmatch(meta.etag):
        raise HubError(f"{file.repo}: {constants.ENDPOINT} gives no etag for {file.path}; check HF_ENDPOINT")
    blob = repo_folder(file.repo) / "blobs" / meta.etag
    partial = blob.with_name(f"{meta.etag}.incomplete")
    lock = store_folder() / ".locks" / repo_folder(file.repo).name / f"{meta.etag}.lock"
    size = meta.size if meta.size is not None else file.n_bytes
    if size <= constants.MAX_HTTP_DOWNLOAD_SIZE:  # what is larger is left to the library and its own transport
        # Where there are no links the library would copy a blob, and keep both.
        place = blob if are_symlinks_supported(repo_folder(file.repo)) else file.link
        for path in (blob, lock, place):
            path.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            if not blob.exists() and not place.exists():
                with partial.open("ab") as out:
                    if out.tell() > size:
                        out.truncate(0)
                    n, bar = out.seek(0, io.SEEK_END), cast(Any, _bar(report))
                    report(n)
                    http_get(url, out, resume_size=n, headers=headers, expected_size=size, tqdm_class=bar)
                _check(file, partial)
                partial.replace(place)
    hf_hub_download(file.repo, file.path, revision=file.revision)


def _bar(report: Callable[[int], None]) -> type:
    """What the library takes for a progress bar."""

    class Bar:
        def __init__(self, *_: object, initial: int = 0, **__: object) -> None:
            self.n = initial

        def update(self, n: float | None = 1) -> None:
            self.n += int(n or 0)
            report(self.n)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    return Bar


def _check(file: _Remote, partial: Path) -> None:
    """HubError, and the file is gone, where its content is not what the hub says."""
    if file.sha256 is not None:
        kind, wanted, start = "SHA-256", file.sha256, hashlib.sha256()
    elif file.blob_id == partial.stem:  # the etag, which tells it from the id of what stands for a large file in git
        kind, wanted, start = "git's SHA-1", partial.stem, hashlib.sha1(b"blob %d\0" % partial.stat().st_size)
    else:
        return
    with partial.open("rb") as content:
        found = hashlib.file_digest(content, lambda: start).hexdigest()
    if found != wanted:
        partial.unlink()
        raise HubError(
            f"{file.repo}: {file.path} came with {kind} {found}, not {wanted}; it was thrown away: pull again"
        )


def _check_space(repo: str, missing: list[_Remote]) -> None:
    """OSError where the disk cannot hold what is to come."""
    folder = store_folder()
    folder.mkdir(parents=True, exist_ok=True)
    here = {path.name: path.stat().st_size for path in (repo_folder(repo) / "blobs").glob("*")}
    come = sum(here.get(f"{file.sha256}", here.get(f"{file.sha256}.incomplete", 0)) for file in missing)
    wanted, free = sum(file.n_bytes for file in missing) - come, shutil.disk_usage(folder).free
    if wanted > free:
        raise OSError(errno.ENOSPC, f"{wanted} bytes are to come, and {free} are free; see HF_HOME", str(folder))


@contextmanager
def _explained(name: HubName) -> Iterator[None]:
    """Errors of the library in words that say what to do."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    hub = constants.ENDPOINT
    try:
        yield
    except GatedRepoError as error:
        raise HubError(
            f"{name}: is gated: agree to its terms at {hub}/{name.repo}, then give your token in HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise HubError(
            f"{name}: {hub} has no model {name.repo}; if it is private, give a token that may read it in HF_TOKEN"
        ) from error
    except OfflineModeIsEnabled as error:
        raise HubError(f"{name}: HF_HUB_OFFLINE is set, so nothing is downloaded; unset it") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status == 401:
            why = "the token in HF_TOKEN is not valid"
        elif status == 403 and not error.server_message:
            why = "it wants a token, in HF_TOKEN, that may read it"
        else:
            why = _first_line(error.server_message or error)
        raise HubError(f"{name}: {hub} answered {status}: {why}") from error
    except OSError as error:
        if "Consistency check failed" not in str(error):
            raise
        raise HubError(f"{name}: {_first_line(error)}; pull again to go on") from error
    except Exception as error:  # those of the library's HTTP client
        if not type(error).__module__.startswith("httpx"):
            raise
        raise HubError(
            f"{name}: cannot reach {hub} ({type(error).__name__}: {_first_line(error)});"
            " check the network, then pull again: what has come is kept"
        ) from error


def _first_line(error: Exception | str) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
