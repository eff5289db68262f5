"""Run by IPython at the start of every kernel and shell from these images, in the user's namespace.

It stands by itself: kernels of a person's own environments run it too, and have none of our code.
"""


def _forget_dead_tensorboards():
    """Before a cell that says `tensorboard`, remove what instances left that are no more.

    `%tensorboard` takes an instance with the same arguments for running as long as its file is
    there. One that was killed leaves its file, and the notebook would show an empty frame.
    """
    import socket

    def is_alive(pid, port):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read()  # nothing where the process ended and is not reaped
            with socket.create_connection(("localhost", port), timeout=1):
                return b"tensorboard" in command
        except (OSError, ValueError):
            return False

    def forget(info):
        if "tensorboard" not in (info.raw_cell or ""):
            return
        import glob
        import json
        import os
        import tempfile

        left = os.path.join(tempfile.gettempdir(), ".tensorboard-info", "pid-*.info")
        for path in glob.glob(left):
            try:
                with open(path) as file:
                    told = json.load(file)
                if not is_alive(told["pid"], told["port"]):
                    os.unlink(path)
            except (OSError, ValueError, LookupError, TypeError):
                pass

    get_ipython().events.register("pre_run_cell", forget)  # noqa: F821 - IPython's own


def _choose_tensorboard():
    """Have `%tensorboard` start the one whose page finds its fonts, where this Python has it."""
    import os
    import sys

    ours = os.path.join(sys.prefix, "bin", "spectrum-tensorboard-page")
    if os.path.exists(ours):
        os.environ.setdefault("TENSORBOARD_BINARY", ours)


_forget_dead_tensorboards()
_choose_tensorboard()
del _forget_dead_tensorboards, _choose_tensorboard
