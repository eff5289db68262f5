"""A release beside the demo for the tests, in namespaces and on a port of its own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from local.cluster import Cluster
from local.errors import Refusal
from local.lock import hold_lock
from local.paths import CHECKOUT, find_state
from local.preflight import check_machine, check_ports
from local.processes import Daemons
from local.progress import Progress
from local.release import Release
from local.snapshot import name_changes, take_snapshot
from local.up import (
    find_demo_values,
    install_demo,
    load_images,
    make_release,
    prepare_release,
    start_cluster,
    wait_for_answer,
)

NAMESPACE = "spectrum-test"
NODE_PORT = 30081
URL = f"http://127.0.0.1:{NODE_PORT}/"
TEST_VALUES = CHECKOUT / "tests" / "cluster" / "values.yaml"


@contextmanager
def trial_release(progress: Progress, values: Sequence[Path] = ()) -> Iterator[Release]:
    """Install the chart for the length of the block, and leave nothing of it.

    `values` are files over those of every test.

    A cluster that is down is started as `local/up` does, one without the demo gets it, and both go
    on afterwards. A demo that runs is left as it is: when anything of it has changed by the end of
    the block, that is a Refusal, since no release may touch another.
    """
    check_machine()
    with hold_lock(find_state() / "trial-lock", progress):
        cluster, images = _start(progress)
        release = make_release(cluster, NAMESPACE)
        if release.find_status() is not None:
            remove_trial(cluster, release, progress)  # of a run that was killed
        demo = make_release(cluster)
        before = take_snapshot(demo.kubectl, demo.namespace)
        try:
            prepare_release(cluster, release)
            release.install([*find_demo_values(cluster), images, TEST_VALUES, *values], progress)
            release.wait_until_ready(progress)
            wait_for_answer(URL, progress)
            yield release
        finally:
            remove_trial(cluster, release, progress)
        changes = name_changes(before, take_snapshot(demo.kubectl, demo.namespace))
        if changes:
            found = "; ".join(changes)
            raise Refusal(f"release {demo.namespace} did not stay as it was: {found}")


def remove_trial(cluster: Cluster, release: Release, progress: Progress) -> None:
    """Remove the release with its namespaces, volumes and buckets."""
    buckets = release.list_buckets()
    release.remove(progress)
    if cluster.ceph:
        for name in buckets:
            # Bucket and owner have one name.
            cluster.ceph.remove_gateway_user(name)


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
        check_ports(Daemons(state), {NODE_PORT: ""})
        was_up = Daemons(state).is_alive("kube-apiserver")
        cluster = start_cluster(progress)
        images = load_images(cluster, progress)
        if not was_up or make_release(cluster).find_status() is None:
            install_demo(cluster, [], images, progress)
    return cluster, images
