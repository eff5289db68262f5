import pytest

from local.binaries import ensure_go_tool
from tests.chart.helm import Helm


@pytest.fixture(scope="session")
def helm() -> Helm:
    return Helm(ensure_go_tool("helm") / "helm")
