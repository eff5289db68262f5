"""A release beside the demo for the tests, in namespaces and on a port of its own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from local.cluster import Cluster
from local.lock import hold_lock
from local.paths import CHECKOUT, find_state
from local.preflight import check_machine
from local.processes import Daemons
from local.progress import Progress
from local.release import Release
from local.up import DEMO_VALUES, install_demo, load_images, make_release, start_cluster

NAMESPACE = "spectrum-test"
URL = "http://127.0.0.1:30081/"
TEST_VALUES = CHECKOUT / "tests" / "cluster" / "values.yaml"


@contextmanager
def trial_release(progress: Progress) -> Iterator[Release]:
    """Install the chart for the length of the block, and leave nothing of it.

    A cluster that is down is started as `local/up` does, and goes on afterwards. The demo of one
    that runs is left as it is.
    """
    check_machine()
    with hold_lock(find_state() / "trial-lock", progress):
        cluster, images = _start(progress)
        release = make_release(cluster, NAMESPACE)
        if release.find_status() is not None:
            release.remove(progress)  # of a run that was killed
        try:
            release.install([DEMO_VALUES, images, TEST_VALUES], progress)
            release.wait_until_ready(progress)
            yield release
        finally:
            release.remove(progress)


def make_test_environment(release: Release) -> Mapping[str, str]:
    """Build the variables that tell the tests which release they run against."""
    return {
        "SPECTRUM_TEST_KUBECONFIG": str(release.kubectl.kubeconfig),
        "SPECTRUM_TEST_NAMESPACE": release.namespace,
    }


def _start(progress: Progress) -> tuple[Cluster, Path]:
    """Return the running cluster and the file of values that name the images loaded into it."""
    state = find_state()
    with hold_lock(state / "lock", progress):
        was_up = Daemons(state).is_alive("kube-apiserver")
        cluster = start_cluster(progress)
        images = load_images(cluster, progress)
        if not was_up:
            install_demo(cluster, [], images, progress)
    return cluster, images
