"""Start of `rankscope.pyz`: unpacks the packages for this Python once, and runs the command line from there.

Old Pythons run it too (3.6 and later), to give way to a newer one on PATH, or to say which one is needed.
"""

import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

FOLDER = "RANKSCOPE_PYZ_FOLDER"
"""Environment variable with the folder to unpack into, instead of the user's cache."""
UNUSABLE = 2
"""Exit code, as of rankscope for wrong arguments."""
ARCHIVE = Path(__file__).parent


def main() -> None:
    """Runs rankscope, in another Python if this one is too old or too new."""
    with ZipFile(str(ARCHIVE)) as archive:
        about = json.loads(archive.read("about.json").decode())
    pythons = about["pythons"]
    version = "{}.{}".format(*sys.version_info[:2])
    if platform.machine() != about["machine"]:
        fail(f"it is made for {about['machine']}, and this is {platform.machine()}")
    if version not in pythons or sys.implementation.name != "cpython":
        other = next(filter(None, (shutil.which(f"python{known}") for known in reversed(pythons))), None)
        if other is None:
            fail(f"it needs Python {', '.join(pythons)}, and this is {version}; none of them is on PATH")
        os.execv(str(other), [str(other), str(ARCHIVE), *sys.argv[1:]])
    try:
        sys.path[0] = str(unpacked(version, about))
    except OSError as error:
        fail(f"cannot unpack: {error}; set {FOLDER} to a folder with 500 MB")
    run(about)


def run(about: dict) -> None:  # type: ignore[type-arg]  # Python 3.6 knows no dict[str, ...]
    """Runs the command line of the unpacked package."""
    try:
        import polars  # noqa: F401 - libraries fail to load here, if they fail anywhere

        from rankscope.cli import main as command_line
    except ImportError as error:
        fail(
            f"{error}; it needs glibc {about['glibc']} or later, and a folder that may hold programs "
            f"({sys.path[0]}; {FOLDER} names another)"
        )
    command_line()


def unpacked(version: str, about: dict) -> Path:  # type: ignore[type-arg]
    """The folder with the packages for a version of Python; it is filled at the first start. Raises OSError."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    base = Path(os.environ.get(FOLDER) or cache + "/rankscope/pyz").expanduser()
    folder = base / "{}-{}-py{}".format(about["version"], about["digest"], version)
    if folder.is_dir():
        return folder
    sys.stderr.write(f"rankscope: unpacking into {folder}, once\n")
    base.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="unpacking-", dir=str(base)))
    try:
        unpack(version, scratch)
        scratch.chmod(0o755)
        scratch.rename(folder)
    except OSError:
        # another process may have been first
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(str(scratch), ignore_errors=True)
    return folder


def unpack(version: str, target: Path) -> None:
    """Writes all files for a version of Python below a folder."""
    with ZipFile(str(ARCHIVE)) as archive:
        for name, content in json.loads(archive.read(f"files/{version}.json").decode()).items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(content) as source, path.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)


def fail(reason: str) -> None:
    """Says why it cannot start, and ends."""
    sys.stderr.write(f"rankscope: {ARCHIVE}: {reason}\n")
    sys.exit(UNUSABLE)


main()
