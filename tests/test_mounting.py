"""Which volume a start waits for, from the pod, the claims and their events."""

from dataclasses import replace
from typing import Any

import pytest

from spectrum_spawner.mounting import Mounting
from spectrum_spawner.mounts import Mount
from spectrum_spawner.owner import Owner
from spectrum_spawner.pods import Pod

OWNER = Owner(hub="spectrum", team="flight", user="alice", server="")
HOME = Mount(kind="home", claim="home-alice", path="/home/jovyan")
SHARE = Mount(kind="share", claim="share", path="/home/jovyan/team")
DISK = Mount(kind="scratch", claim="scratch-1", path="/home/jovyan/scratch", name="exp1")
DATASET = Mount(kind="dataset", claim="dataset-a", path="/home/jovyan/datasets/a", name="a")
POD = Pod(name="jupyter-alice", uid="1", owner=OWNER, start_id="s", phase="Pending")
UNBOUND = replace(
    POD, unschedulable="0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
)
HELD = replace(
    POD,
    unschedulable="0/2 nodes are available: 1 Insufficient cpu, 1 node has pod using "
    "PersistentVolumeClaim with the same name and ReadWriteOncePod access mode.",
)
ON_NODE = replace(POD, scheduled=True)
HOLDER = replace(
    POD, name="two", owner=replace(OWNER, server="two"), phase="Running", claims=("scratch-1",)
)
SILENT = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
AGAIN = "rpc error: code = Aborted desc = an operation with the given Volume ID x already exists"


def make_claim(name: str, phase: str = "Bound", *, ceph: bool = True) -> dict[str, Any]:
    provisioner = "rook-ceph.cephfs.csi.ceph.com" if ceph else "example.com/path"
    key = "volume.kubernetes.io/storage-provisioner"
    return {
        "metadata": {"name": name, "annotations": {key: provisioner}},
        "spec": {"storageClassName": "fast", "volumeName": f"pv-{name}" * (phase == "Bound")},
        "status": {"phase": phase},
    }


def make_event(reason: str, message: str = "", *, claim: str = "", at: str = "1") -> dict[str, Any]:
    return {"reason": reason, "type": "Warning", "message": message, "claim": claim, "at": at}


def make_mounting(*claims: dict[str, Any], pods: tuple[Pod, ...] = ()) -> Mounting:
    mounts = [HOME, SHARE, DISK, DATASET]
    mounting = Mounting(mounts, namespace="spectrum-flight", pods=pods)
    for claim in claims:
        mounting.note_claim(claim)
    return mounting


def test_a_claim_that_cannot_be_made_is_named_with_the_reason() -> None:
    mounting = make_mounting(make_claim("home-alice"), make_claim("share", "Pending"))
    assert mounting.why(UNBOUND) == "the team volume (claim share): it has not been made yet"
    failed = 'storageclass.storage.k8s.io "x" not found'
    assert mounting.note_event(make_event("ProvisioningFailed", failed, claim="share"))
    why = "the team volume (claim share): storage class “x” does not exist"
    assert (mounting.why(UNBOUND), mounting.why(POD)) == (why, why)
    mounting.note_claim(make_claim("share"))
    assert mounting.why(UNBOUND) == "your volumes"


def test_the_last_reason_counts_and_another_try_is_none() -> None:
    mounting = make_mounting(make_claim("share", "Pending"))
    for at, message in (("3", AGAIN), ("2", SILENT), ("1", "no room")):
        mounting.note_event(make_event("ProvisioningFailed", message, claim="share", at=at))
    assert mounting.why(POD) == "the team volume (claim share): Ceph does not answer"


def test_what_is_not_ceph_is_not_called_so() -> None:
    mounting = make_mounting(make_claim("share", "Pending", ceph=False))
    mounting.note_event(make_event("ProvisioningFailed", SILENT, claim="share"))
    assert mounting.why(POD) == "the team volume (claim share): the storage does not answer"


def test_claims_of_others_do_not_matter() -> None:
    mounting = make_mounting()
    assert not mounting.note_event(make_event("ProvisioningFailed", SILENT, claim="home-bob"))
    assert mounting.note_event(make_event("ProvisioningSucceeded", claim="share"))
    assert mounting.why(POD) == ""


@pytest.mark.parametrize(
    ("unschedulable", "why"),
    [
        ("0/1 nodes are available: 1 Insufficient cpu.", ""),
        (
            'persistentvolumeclaim "share" not found',
            "the team volume (claim share): it does not exist",
        ),
        (
            'persistentvolumeclaim "home-alice" is being deleted',
            "your home (claim home-alice): it is being deleted",
        ),
        ('persistentvolumeclaim "other" not found', "claim other: it does not exist"),
        (
            "0/1 nodes are available: 1 node(s) had volume node affinity conflict.",
            "a node that has room and reaches your volumes",
        ),
    ],
)
def test_the_scheduler_is_understood(unschedulable: str, why: str) -> None:
    mounting = make_mounting(make_claim("home-alice"), make_claim("share"))
    assert mounting.why(replace(POD, unschedulable=unschedulable)) == why


def test_a_volume_that_is_gone_from_under_its_claim_is_said() -> None:
    mounting = make_mounting(make_claim("home-alice", "Lost"))
    assert mounting.why(UNBOUND) == ("your home (claim home-alice): the volume behind it is gone")


def test_a_node_names_volumes_and_people_read_of_claims() -> None:
    mounting = make_mounting(make_claim("home-alice"), make_claim("scratch-1"))
    attached = 'Multi-Attach error for volume "pv-scratch-1" Volume is already exclusively attached'
    summary = "Unable to attach or mount volumes: unmounted volumes=[home scratch]: timed out"
    assert mounting.note_event(make_event("FailedAttachVolume", attached, at="1"))
    assert mounting.note_event(make_event("FailedMount", summary, at="2"))
    assert mounting.why(ON_NODE) == (
        "your scratch disk “exp1” (claim scratch-1): it is still attached to another node"
    )


def test_a_summary_alone_is_better_than_nothing() -> None:
    mounting = make_mounting()
    summary = "Unable to attach or mount volumes: unmounted volumes=[dataset-a], x: timed out"
    mounting.note_event(make_event("FailedMount", summary))
    assert mounting.why(ON_NODE) == (
        "dataset “a” (claim dataset-a): the node has not mounted it yet"
    )


def test_the_name_of_a_volume_may_be_learned_after_it_failed() -> None:
    mounting = make_mounting()
    failed = f'MountVolume.MountDevice failed for volume "pv-share" : {SILENT}'
    mounting.note_event(make_event("FailedMount", failed))
    assert mounting.is_unsure(ON_NODE)
    assert mounting.why(ON_NODE) == "a volume: the storage does not answer"
    mounting.note_claim(make_claim("share"))
    assert mounting.why(ON_NODE) == "the team volume (claim share): Ceph does not answer"


def test_once_all_is_mounted_no_volume_is_in_the_way() -> None:
    mounting = make_mounting(make_claim("share"))
    mounting.note_event(make_event("FailedMount", f'volume "pv-share" : {SILENT}'))
    assert mounting.why(ON_NODE)
    assert not mounting.note_event(make_event("Pulled", "Container image is there"))
    assert mounting.why(ON_NODE) == mounting.why(None) == ""
    assert mounting.why(replace(ON_NODE, phase="Running")) == ""


@pytest.mark.parametrize(
    ("pod", "unsure"),
    [
        (None, False),
        (POD, True),
        (UNBOUND, True),
        (replace(POD, unschedulable="0/1 nodes are available: 1 Insufficient cpu."), False),
        (ON_NODE, False),
        (replace(ON_NODE, phase="Running"), False),
    ],
)
def test_claims_are_only_looked_at_where_they_may_be_the_reason(
    pod: Pod | None, unsure: bool
) -> None:
    assert make_mounting().is_unsure(pod) is unsure


def test_a_disk_that_another_server_took_meanwhile_refuses_the_start() -> None:
    mounting = make_mounting(pods=(HELD, HOLDER))
    assert mounting.why_refused(HELD).startswith(
        "Your scratch disk “exp1” is in use by your server “two”"
    )
    assert mounting.why_stuck(HELD) == ""
    assert mounting.why_refused(UNBOUND) == mounting.why_stuck(UNBOUND) == ""


def test_a_disk_of_a_server_that_stops_is_waited_for() -> None:
    mounting = make_mounting(pods=(HELD, replace(HOLDER, deleting=True)))
    assert mounting.why_refused(HELD) == mounting.why_stuck(HELD) == ""
    assert mounting.why(HELD) == (
        "your scratch disk “exp1” (claim scratch-1): it is in use by your server “two”, which is "
        "stopping"
    )


def test_a_dataset_that_alone_is_in_the_way_is_not_waited_for_for_long() -> None:
    mounting = make_mounting(make_claim("dataset-a"), make_claim("home-alice"))
    gone = "rpc error: code = Internal desc = mount failed: No such file or directory"
    failed = f'MountVolume.SetUp failed for volume "pv-dataset-a" : {gone}'
    mounting.note_event(make_event("FailedMount", failed))
    reason = "mount failed: No such file or directory"
    assert mounting.find_unmountable(ON_NODE) == {"dataset-a": reason}
    assert mounting.why_stuck(ON_NODE) == (
        f"Dataset “a” (claim dataset-a) cannot be mounted: {reason}. Start your server again, and "
        "for now it starts without that dataset. Ask a cluster administrator to look at it."
    )
    for other in (None, POD, replace(ON_NODE, phase="Running")):
        assert mounting.find_unmountable(other) == {}


@pytest.mark.parametrize("other", ["pv-home-alice", "pv-of-nobody-knows-what"])
def test_a_dataset_is_waited_for_while_other_volumes_fail_as_well(other: str) -> None:
    mounting = make_mounting(make_claim("dataset-a"), make_claim("home-alice"))
    for volume in ("pv-dataset-a", other):
        mounting.note_event(make_event("FailedMount", f'failed for volume "{volume}" : {SILENT}'))
    assert mounting.find_unmountable(ON_NODE) == {}
    assert mounting.why_stuck(ON_NODE) == ""


def test_a_claim_that_was_made_of_a_class_that_does_not_exist_is_to_be_made_anew() -> None:
    mounting = make_mounting(make_claim("home-alice", "Pending"), make_claim("share", "Pending"))
    missing = 'storageclass.storage.k8s.io "typo" not found'
    mounting.note_event(make_event("ProvisioningFailed", missing, claim="share"))
    assert mounting.why_stuck(UNBOUND) == ""  # not the person's own: the team's is left out
    mounting.note_event(make_event("ProvisioningFailed", missing, claim="home-alice"))
    assert mounting.why_stuck(UNBOUND) == (
        "Your home (claim home-alice) cannot be made: storage class “typo” does not exist. It "
        "holds nothing yet: ask a cluster administrator to set its class right and to have it made "
        "anew, by kubectl --namespace spectrum-flight annotate persistentvolumeclaim home-alice "
        "spectrum.dev/purge=home-alice"
    )
    mounting.note_claim(make_claim("home-alice"))
    assert mounting.why_stuck(UNBOUND) == ""


def test_a_disk_that_something_else_holds_is_not_waited_for_for_long() -> None:
    mounting = make_mounting(pods=(HELD,))
    assert mounting.why_refused(HELD) == ""
    assert mounting.why(HELD).endswith("it is in use by another pod")
    assert mounting.why_stuck(HELD).startswith("Your scratch disk “exp1” is in use by another pod")
