"""Fill a person's home at the start of a server."""

import logging
import os
import shutil
import tempfile
from pathlib import Path

log = logging.getLogger(__name__)


def add_examples(examples: Path, home: Path) -> bool:
    """Copy the image's examples to `home/examples`, unless there is anything by that name.

    Return True if they were copied. The folder appears whole or not at all, also when two
    servers of one person start at once. A home that is full or read-only is logged, not raised:
    the person needs a server to clean it up.
    """
    target = home / "examples"
    if os.path.lexists(target) or not examples.is_dir() or not any(examples.iterdir()):
        return False
    try:
        staging = Path(tempfile.mkdtemp(prefix=".examples-", dir=home))
        try:
            # The modes are those of new files under this process' umask, not the image's.
            shutil.copytree(examples, staging / "examples", copy_function=shutil.copyfile)
            os.rename(staging / "examples", target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        if os.path.lexists(target):
            return False
        log.warning("The examples could not be copied to %s: %s", target, error)
        return False
    return True
