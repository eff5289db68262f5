"""Start JupyterHub's single-user server, in less time.

The server is JupyterHub's own extension of Jupyter Server, unchanged: sign-in, scopes, activity
reports. Half of the time that `jupyterhub-singleuser` takes to start goes into imports that no
server uses; `import_singleuser` leaves these out.
"""

import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from spectrum_lab.home import (
    add_examples,
    add_profile,
    make_refuge,
    protect_keys,
    takes_files,
)

SHARE = Path(sys.prefix, "share", "spectrum")
REFUGE = Path("/tmp/jupyter-refuge")


def import_lazily(package: str, name: str) -> None:
    """Import the package's module once something of it is used, not when an import names it."""
    spec = importlib.util.find_spec(f"{package}.{name}")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    # As after any import; without it, `from package import name` would look into the module.
    setattr(sys.modules[package], name, module)


@contextmanager
def health_check_handler_left_out() -> Iterator[None]:
    """Within this context, `jupyterhub.handlers.pages` holds an empty HealthCheckHandler alone.

    `jupyterhub.log` needs the class to log fewer health checks, which only the hub's own
    application serves, and imports all of the hub's handlers for it. Afterwards the stand-in is
    gone: a later import gets the real module.
    """
    pages = ModuleType("jupyterhub.handlers.pages")
    pages.HealthCheckHandler = type("HealthCheckHandler", (), {})  # type: ignore[attr-defined]
    package = ModuleType("jupyterhub.handlers")
    package.__path__ = []
    sys.modules |= {package.__name__: package, pages.__name__: pages}
    try:
        yield
    finally:
        del sys.modules[pages.__name__], sys.modules[package.__name__]


def import_singleuser() -> Callable[[], None]:
    """Return the `main` of JupyterHub's single-user extension.

    Its module imports much that a server never uses. The times are those of JupyterHub 6.1.1 and
    Jupyter Server 2.21.1 on one core; each of these stays correct if a later version changes.
    """
    # jsonschema takes this import as optional: it checks the format of internationalised URIs,
    # which no schema of Jupyter has, and compiles a grammar for it: 0.9 s. None in sys.modules
    # makes the import fail at once, in this process only.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    # The hub's database, with alembic, for functions of `scopes` that only the hub calls: 0.2 s.
    import_lazily("jupyterhub", "orm")
    # The __init__ of this package imports the mixins of the older, non-extension server: 0.3 s.
    # Here the package is found, and its __init__ not run.
    package = importlib.util.find_spec("jupyterhub.singleuser")
    assert package is not None
    sys.modules[package.name] = importlib.util.module_from_spec(package)
    with health_check_handler_left_out():
        from jupyterhub.singleuser.extension import main
    from jupyter_core.application import JupyterApp

    # Jupyter looks for settings of IPython before 4.0, of 2015, and notes in the home that it has:
    # a server whose home takes no note would not start.
    JupyterApp.migrate_config = lambda self: None
    return main


def extend_library_path(listing: Path) -> None:
    """Append the folders named in `listing`, one a line, to LD_LIBRARY_PATH for kernels.

    What the pod already has there comes first: a GPU operator may have put the driver there.
    """
    if not listing.is_file():
        return
    paths = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    paths += [path for path in listing.read_text().splitlines() if path not in paths]
    if paths:
        os.environ["LD_LIBRARY_PATH"] = ":".join(paths)


def tell_proxy_url() -> None:
    """Have `%tensorboard` in a notebook show the address behind the hub, of whatever prefix.

    Else it shows the port of the browser's own machine. TensorBoard puts the number for %PORT%.
    """
    prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "/")
    os.environ.setdefault("TENSORBOARD_PROXY_URL", f"{prefix}proxy/%PORT%/")


def dismiss_idle_threads() -> None:
    """Let the process end at once though threads of anyio wait for work.

    They end with the task that they were made for. Of shared documents such tasks are left when
    the event loop stops, and the interpreter would wait until the pod is killed.
    """
    for thread in threading.enumerate():
        if type(thread).__module__.startswith("anyio."):
            thread.stop()  # type: ignore[attr-defined]


def main() -> None:
    """Run the server that the hub's environment variables describe, until it is stopped."""
    # Files of a team are writable by the team; the group comes from the folder (setgid).
    os.umask(0o002)
    extend_library_path(SHARE / "library-path")
    tell_proxy_url()
    home = Path.home()
    protect_keys(home)
    if takes_files(home):
        add_examples(SHARE / "examples", home)
        add_profile(home)
    else:
        os.environ.update(make_refuge(home, REFUGE))
    run = import_singleuser()
    try:
        run()
    finally:
        dismiss_idle_threads()
