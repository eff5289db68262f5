"""TensorBoard with a page that finds its fonts behind the hub too.

TensorBoard's own asks for them at the root of the host, where they are for a TensorBoard that has
the host to itself; for all others that is a 404 each. Beside the page they are wherever it is.
"""

import io
import warnings
import zipfile
from collections.abc import Callable
from typing import IO

PAGE = "index.html"
AT_ROOT, BESIDE = b"url(/font-roboto/", b"url(font-roboto/"


def main() -> None:
    """Run TensorBoard, with its own arguments."""
    from tensorboard import assets
    from tensorboard.main import run_main

    own = assets.get_default_assets_zip_provider()
    if own is not None:
        assets.get_default_assets_zip_provider = lambda: lambda: mend(own)
    run_main()


def mend(provide: Callable[[], IO[bytes]]) -> IO[bytes]:
    """The zip file of a page and its parts that `provide` opens, with the mended page."""
    with provide() as file:
        mended = io.BytesIO(file.read())
    with zipfile.ZipFile(mended, "a", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        # of two with one name the later counts, and all else stays packed as it is
        warnings.simplefilter("ignore", UserWarning)
        archive.writestr(PAGE, archive.read(PAGE).replace(AT_ROOT, BESIDE))
    mended.seek(0)
    return mended
