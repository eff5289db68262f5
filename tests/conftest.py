"""The release that cluster and browser tests run against."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from local.binaries import ensure_go_tool, ensure_kube
from local.kubectl import Kubectl
from local.progress import Progress
from local.release import Release
from local.trial import URL, make_test_environment, trial_release
from local.up import wait_for_answer


@dataclass(frozen=True)
class InstalledRelease:
    """A release that is ready; `url` ends in a slash, `chart` can upgrade it."""

    url: str
    namespace: str
    user_password: str
    admin_password: str
    kubectl: Kubectl
    chart: Release

    def wait_until_ready(self) -> None:
        """After a change: that the newest pods run, and the way to them is known."""
        self.chart.wait_until_ready(Progress())
        wait_for_answer(self.url, Progress())


@pytest.fixture(scope="session")
def release() -> Iterator[InstalledRelease]:
    """The release that local/test has installed; without one, one for this session."""
    if "SPECTRUM_TEST_NAMESPACE" in os.environ:
        yield _find_release(os.environ)
        return
    with trial_release(Progress()) as installed:
        yield _find_release(make_test_environment(installed))


def _find_release(environment: Mapping[str, str]) -> InstalledRelease:
    kubeconfig = Path(environment["SPECTRUM_TEST_KUBECONFIG"])
    kubectl = Kubectl((str(ensure_kube()), "kubectl"), kubeconfig)
    helm = ensure_go_tool("helm") / "helm"
    chart = Release(helm, kubectl, environment["SPECTRUM_TEST_NAMESPACE"])
    secret = chart.read_secret()
    return InstalledRelease(
        url=URL,
        namespace=chart.namespace,
        user_password=secret["userPassword"],
        admin_password=secret["adminPassword"],
        kubectl=kubectl,
        chart=chart,
    )
