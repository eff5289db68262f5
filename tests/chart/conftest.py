import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.binaries import ensure_go_tool
from local.control_plane import control_plane
from tests.chart.helm import Helm
from tests.chart.release import Release

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def helm() -> Helm:
    return Helm(ensure_go_tool("helm") / "helm")


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    """The way to an API server."""
    with control_plane() as plane:
        yield plane.kubeconfig


@pytest.fixture
def release(helm: Helm, kubeconfig: Path) -> Release:
    """A release of its own for each test, in a namespace of its own."""
    return Release(helm, kubeconfig, f"release-{next(NUMBERS)}")
