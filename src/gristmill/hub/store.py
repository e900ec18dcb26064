"""The models that were pulled: found, listed and removed in the hub's own cache, which other programs share.

Its layout: huggingface.co/docs/huggingface_hub, "Understand caching". Blobs by hash, a folder of links a revision.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gristmill.hub.names import HubError, HubName, as_name

if TYPE_CHECKING:
    from gristmill.hub.variants import Variant


@dataclass(frozen=True, slots=True)
class Stored:
    """A whole model on this disk. snapshot: the folder of its revision."""

    repo: str
    snapshot: Path
    variant: Variant

    @property
    def name(self) -> HubName:
        return HubName(self.repo, self.variant.label)

    @property
    def revision(self) -> str:
        return self.snapshot.name

    @property
    def path(self) -> Path:
        """What to open: a file, or a folder."""
        return self.snapshot / self.variant.entry

    @property
    def files(self) -> list[Path]:
        return [self.snapshot / file for file in self.variant.files]

    @property
    def n_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    @property
    def pulled(self) -> float:
        """When the last of its files came, in seconds since 1970."""
        return max(file.stat().st_mtime for file in self.files)


def store_folder() -> Path:
    """HF_HUB_CACHE, or `hub` in HF_HOME, as the library has it."""
    from huggingface_hub import constants  # takes 20 ms

    return Path(constants.HF_HUB_CACHE)


def repo_folder(repo: str) -> Path:
    return store_folder() / f"models--{repo.replace('/', '--')}"


def locate(model: str | Path) -> Path:
    """The path of what -m names: a path as it is, `org/name:QUANT` from the store. It never asks the network.

    Raises HubError for a name whose model is not in the store, and for an empty one.
    """
    if model == "":
        raise HubError("the name of the model is empty, perhaps by a variable that is not set; give a file or a name")
    name = as_name(model)
    return Path(model) if name is None else find(name).path


def find(name: HubName) -> Stored:
    """The one model in the store that `name` means. HubError, which says how to pull it, where there is none."""
    from gristmill.hub.variants import choose

    there = models_of(name.repo)
    if not there:
        raise HubError(
            f"{name}: there is no such file or folder, and no model of this name in {store_folder()};"
            f" download it: gristmill pull {name}"
        )
    try:
        chosen = choose(name, [stored.variant for stored in there], str(store_folder()))
    except HubError as error:
        if name.quant is None:
            raise
        raise HubError(f"{error}; download it: gristmill pull {name}") from None
    return next(stored for stored in there if stored.variant == chosen)


def all_models() -> list[Stored]:
    """Every whole model in the store, by name."""
    found = list[Stored]()
    for folder in sorted(store_folder().glob("models--*--*")):
        found += models_of(folder.name.removeprefix("models--").replace("--", "/", 1))
    return found


def models_of(repo: str) -> list[Stored]:
    """The whole models of a repository in the store, each from the revision that was pulled last.

    One whose label a model of a later revision has is called by its file, as within a revision.
    """
    from gristmill.hub.variants import Variant, variants

    found: dict[str, Stored] = {}
    for snapshot in _snapshots(repo_folder(repo)):
        files = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]
        for variant in variants(files):
            if variant.entry not in found:
                is_taken = any(variant.label == stored.variant.label for stored in found.values())
                label = variant.entry if is_taken else variant.label
                found[variant.entry] = Stored(repo, snapshot, Variant(label, variant.files))
    return list(found.values())


def remove(stored: Stored) -> int:
    """Delete a model from every revision, and the repository's folder where nothing else is left, not even begun.

    The bytes freed.
    """
    folder = repo_folder(stored.repo)
    before = _used(folder)
    gone = set[str]()
    for snapshot in _snapshots(folder):
        for file in stored.variant.files:
            link = snapshot / file
            if link.is_symlink():
                gone.add(link.readlink().name)
            link.unlink(missing_ok=True)
    left = _links(folder)
    if not left and not unfinished(stored.repo):
        _remove_folder(folder)
        return before
    for blob in gone - {link.readlink().name for link in left if link.is_symlink()}:
        (folder / "blobs" / blob).unlink(missing_ok=True)
    return before - _used(folder)


def unfinished(repo: str) -> list[Path]:
    """What has come of files that were not downloaded to their end."""
    return sorted((repo_folder(repo) / "blobs").glob("*.incomplete"))


def remove_unfinished(repo: str) -> int:
    """Delete that, but for files that somebody is downloading just now. The bytes freed."""
    from filelock import Timeout
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    folder, n_bytes = repo_folder(repo), 0
    locks = store_folder() / ".locks" / folder.name
    locks.mkdir(parents=True, exist_ok=True)
    for partial in unfinished(repo):
        etag = re.sub(r"\.[0-9a-f]{8}$", "", partial.stem)  # a number that the library gives each download
        with suppress(Timeout, FileNotFoundError), WeakFileLock(locks / f"{etag}.lock", timeout=0.2):
            n_bytes += partial.stat().st_size
            partial.unlink()
    if not _links(folder) and not unfinished(repo):
        _remove_folder(folder)
    return n_bytes


def set_main(repo: str, revision: str) -> None:
    """Note, in one step, that the hub's `main` was this revision. Others may do the same at the same time."""
    main = repo_folder(repo) / "refs" / "main"
    main.parent.mkdir(parents=True, exist_ok=True)
    new = main.with_name(f"main.{os.urandom(8).hex()}")
    new.write_text(revision)
    new.replace(main)


def _snapshots(folder: Path) -> list[Path]:
    """Folders of revisions: first what `main` was when something was pulled last, then the latest."""
    main = ""
    with suppress(OSError, ValueError):
        main = (folder / "refs" / "main").read_text().strip()
    found = [path for path in (folder / "snapshots").glob("*") if path.is_dir()]
    return sorted(found, key=lambda path: (path.name == main, path.stat().st_mtime), reverse=True)


def _links(folder: Path) -> list[Path]:
    """Files of all revisions."""
    return [path for path in (folder / "snapshots").rglob("*") if not path.is_dir()]


def _remove_folder(folder: Path) -> None:
    import shutil  # which takes long to import

    shutil.rmtree(folder)
    shutil.rmtree(store_folder() / ".locks" / folder.name, ignore_errors=True)


def _used(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
