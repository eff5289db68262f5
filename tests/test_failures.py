"""Why a volume is not there: what Kubernetes and drivers say, and what people read."""

import pytest

from spectrum_spawner.failures import say_reason

PROVISION = 'failed to provision volume with StorageClass "rook-cephfs": rpc error: '
MOUNT = 'MountVolume.MountDevice failed for volume "pvc-1" : rpc error: '
ATTACH = 'Multi-Attach error for volume "pvc-1" '


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('storageclass.storage.k8s.io "gone" not found', "storage class “gone” does not exist"),
        (
            "no persistent volumes available for this claim and no storage class is set",
            "no storage class is set, and the cluster has no default one",
        ),
        (f"{PROVISION}code = DeadlineExceeded desc = context deadline", "Ceph does not answer"),
        (f"{PROVISION}code = Unavailable desc = connection error: desc =", "Ceph does not answer"),
        (f"{MOUNT}code = Internal desc = rados: ret=-110, timed out", "Ceph does not answer"),
        (
            f"{MOUNT}code = Internal desc = stat /x: Transport endpoint is not connected",
            "the node has lost its connection to Ceph",
        ),
        (
            'MountVolume.MountDevice failed for volume "pvc-1" : kubernetes.io/csi: attacher.'
            "MountDevice failed to create newCsiDriverClient: driver name "
            "rook-ceph.rbd.csi.ceph.com not found in the list of registered CSI drivers",
            "its driver rook-ceph.rbd.csi.ceph.com does not run on the node",
        ),
        (
            'fetching NodeStageSecretRef rook-ceph/rook failed: secrets "rook" not found',
            "Secret rook of its storage class does not exist",
        ),
        (
            f"{MOUNT}code = InvalidArgument desc = failed to establish the connection: failed to "
            "get user and key from node stage secrets: missing ID field 'userID' in secrets",
            "the Secret by which nodes mount it has no key userID",
        ),
        (
            f"{ATTACH}Volume is already exclusively attached to one node and can't be attached to "
            "another",
            "it is still attached to another node",
        ),
        (
            f"{ATTACH}Volume is already used by pod(s) jupyter-bob, job-1",
            "it is still attached to another node, for pod jupyter-bob, job-1",
        ),
        (
            "Unable to attach or mount volumes: unmounted volumes=[share], unattached volumes=[], "
            "failed to process volumes=[]: timed out waiting for the condition",
            "the node has not mounted it yet",
        ),
        (f"{MOUNT}code = Internal desc = exit status 32", "exit status 32"),
        ("x" * 1000, "x" * 200),
        ("", "nobody says why"),
    ],
)
def test_a_failure_is_said_in_words(message: str, reason: str) -> None:
    assert say_reason(message, is_ceph=True) == reason


def test_what_is_not_ceph_is_not_called_so() -> None:
    said = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    assert say_reason(said, is_ceph=False) == "the storage does not answer"
