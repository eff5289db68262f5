"""How many GPUs a pod has to be measured."""

import pytest

from spectrum_spawner.pods import trim
from spectrum_spawner.service.culling.pods import count_gpus


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        ({"cpu": "4", "memory": "16Gi"}, 0),
        ({"nvidia.com/gpu": "2"}, 2),
        ({"nvidia.com/mig-1g.10gb": "1"}, 1),
        ({"amd.com/gpu": "1"}, 1),
        ({"example.com/accelerator": "4"}, 4),  # a profile names it
        # what a webhook added to the pod is measured by nobody
        ({"nvidia.com/gpu": "1", "rdma/hca": "1", "smarter-devices/fuse": "1"}, 1),
        ({"nvidia.com/gpu": "1", "nvidia.com/hostdev": "1"}, 1),
    ],
)
def test_only_what_is_a_gpu_counts_as_one(limits: dict[str, str], gpus: int) -> None:
    pod = trim(
        {
            "metadata": {"name": "jupyter-alice", "uid": "u-1"},
            "spec": {"containers": [{"name": "notebook", "resources": {"limits": limits}}]},
        }
    )
    assert count_gpus(pod, {"example.com/accelerator"}) == gpus
