"""Sentences about a start: what the person reads, and in which order."""

import asyncio

import pytest

from spectrum_spawner.choice import Choice
from spectrum_spawner.diagnosis import (
    ExitStatus,
    why_ended,
    why_hopeless,
    why_never_fits,
    why_no_mount_point,
)
from spectrum_spawner.inventory import GPUs, Inventory
from spectrum_spawner.owner import Owner
from spectrum_spawner.pods import SHARE_FAILED, Pod
from spectrum_spawner.profiles import Image, Profile
from spectrum_spawner.progress import Journal, describe_event, describe_pod
from spectrum_spawner.teams import Team

OWNER = Owner(hub="spectrum", team="flight", user="alice", server="")
IMAGE = Image(name="tensorflow", title="TensorFlow 2.21", image="registry.example/tf:1")
INVENTORY = Inventory(
    gpus=(
        GPUs(resource="nvidia.com/gpu", product="NVIDIA-A100", total=4, free=0),
        GPUs(resource="nvidia.com/gpu", product="NVIDIA-T4", total=2, free=2),
    )
)


def make_choice(**parts: object) -> Choice:
    profile = Profile(name="p", title="One GPU", images=(IMAGE,), **parts)  # type: ignore[arg-type]
    team = Team(name="flight", uid="u", display_name="Flight", groups=frozenset({"flight"}))
    return Choice(team=team, profile=profile, image=IMAGE)


def make_pod(**parts: object) -> Pod:
    whole = {"name": "p", "uid": "1", "owner": OWNER, "start_id": "s", "phase": "Pending", **parts}
    return Pod(**whole)  # type: ignore[arg-type]


NO_GPU = "0/3 nodes are available: 2 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint"
NO_ROOM = "0/3 nodes are available: 3 Insufficient cpu, 1 Insufficient memory."
NO_NODE = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."


@pytest.mark.parametrize(
    ("pod", "step"),
    [
        (None, (20, "Asked the cluster for your server")),
        (make_pod(), (20, "Looking for a node with room for your server")),
        (
            make_pod(unschedulable=NO_GPU),
            (25, "Waiting for a GPU: 0 of 4 NVIDIA-A100 are free"),
        ),
        (
            make_pod(unschedulable=NO_ROOM),
            (25, "Waiting for room: no node has enough cpu and memory free now"),
        ),
        (
            make_pod(unschedulable=NO_NODE),
            (
                25,
                "No node matches profile “One GPU”: "
                "if this stays, choose another profile or ask a cluster administrator",
            ),
        ),
        (make_pod(scheduled=True, mounting=True), (40, "A node is mounting your volumes")),
        (make_pod(scheduled=True), (40, "A node is preparing your server")),
        (
            make_pod(scheduled=True, waiting="ErrImagePull"),
            (45, "Image “TensorFlow 2.21” could not be pulled; the node tries again"),
        ),
        (make_pod(scheduled=True, phase="Running"), (85, "Starting JupyterLab")),
    ],
)
def test_a_pod_on_its_way_is_told_in_words(pod: Pod | None, step: tuple[int, str]) -> None:
    choice = make_choice(gpu=1, gpu_product="NVIDIA-A100")
    assert describe_pod(pod, choice=choice, inventory=INVENTORY) == step


@pytest.mark.parametrize(
    ("pod", "percent"), [(make_pod(), 25), (make_pod(scheduled=True, waiting="ErrImagePull"), 40)]
)
def test_a_volume_in_the_way_is_what_a_pod_waits_for(pod: Pod, percent: int) -> None:
    why = "your home (claim home-alice): Ceph does not answer"
    step = describe_pod(pod, choice=make_choice(), inventory=INVENTORY, volume=why)
    assert step == (percent, f"Waiting for {why}")


@pytest.mark.parametrize(
    ("choice", "inventory", "sentence"),
    [
        (make_choice(gpu=2), INVENTORY, "Waiting for 2 GPUs: 2 of 6 GPUs are free"),
        (make_choice(gpu=1), Inventory.UNKNOWN, "Waiting for a GPU"),
    ],
)
def test_how_many_gpus_are_free_is_only_said_if_somebody_counted(
    choice: Choice, inventory: Inventory, sentence: str
) -> None:
    pod = make_pod(unschedulable=NO_GPU)
    assert describe_pod(pod, choice=choice, inventory=inventory) == (25, sentence)


@pytest.mark.parametrize(
    ("reason", "message", "step"),
    [
        ("Pulling", 'Pulling image "x"', (50, "Pulling image “TensorFlow 2.21” (the first time ")),
        ("Pulled", "Successfully pulled image", (70, "Image “TensorFlow 2.21” is there")),
        ("Pulled", 'Container image "x" already present on machine', None),
        ("Scheduled", "Successfully assigned", None),
        ("ScriptInjected", "<script>alert(1)</script>", None),
    ],
)
def test_events_add_only_what_we_have_a_sentence_for(
    reason: str, message: str, step: tuple[int, str] | None
) -> None:
    event = {"reason": reason, "type": "Normal", "message": message}
    found = describe_event(event, choice=make_choice())
    if step is None or found is None:
        assert found == step
    else:
        assert (found[0], found[1].startswith(step[1])) == (step[0], True)


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (make_pod(), ""),
        (make_pod(waiting="ContainerCreating"), ""),
        (make_pod(waiting="ImagePullBackOff"), ""),  # may turn out well for a while
        (
            make_pod(waiting="InvalidImageName", waiting_message="bad name"),
            "Your server cannot start: its image name is invalid. Ask a cluster administrator.",
        ),
        (
            make_pod(ended=True, exit_reason="OOMKilled", exit_code=137),
            "Your server ended while it was starting: it used more memory than its profile allows "
            "(OOMKilled), exit code 137.",
        ),
        (
            make_pod(ended=True, exit_reason=SHARE_FAILED, exit_code=1, exit_message="no room"),
            "Your server ended while it was starting: the team's directory could not be made in "
            "the team volume, exit code 1: no room.",
        ),
        (
            make_pod(deleting=True),
            "The server's pod was deleted while it was starting: try again.",
        ),
    ],
)
def test_a_pod_that_cannot_become_ready_is_given_up_with_a_reason(pod: Pod, sentence: str) -> None:
    assert why_hopeless(pod) == sentence


# what runc 1.1 and 1.3 say, as containerd passes it on
RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    "create failed: unable to start container process: error during container init: error mounting "
    '"/var/lib/kubelet/pods/1/volumes/pvc-1/mount" to rootfs at "/home/jovyan/{name}": '
)
OLDER = "mount /var/lib/x:/home/jovyan/{name} (via /proc/self/fd/6), flags: 0x5000: "
NEWER = "create mountpoint for /home/jovyan/{name} mount: "


@pytest.mark.parametrize(
    ("name", "said", "sentence"),
    [
        (
            "team",
            f"{RUNC}{OLDER}not a directory: unknown",
            "Your server cannot start: “team” in your home is a file, and a volume is to be "
            "mounted there. Ask a cluster administrator to rename it, as Spectrum's "
            "docs/storage.md tells under “A home that no server can mount”.",
        ),
        (
            "scratch",
            f"{RUNC}{NEWER}mkdirat /home/jovyan/scratch: not a directory",
            "Your server cannot start: “scratch” in your home is a file, and a volume is to be "
            "mounted there. Start it without a scratch disk and rename it.",
        ),
        (
            "datasets",
            f"{RUNC}{NEWER}mkdirat: disk quota exceeded",
            "Your server cannot start: no directory “datasets” can be made in your home, which is "
            "full or read-only. Ask a cluster administrator to make room, as Spectrum's "
            "docs/storage.md tells under “A home that no server can mount”.",
        ),
        ("", 'exec: "spectrum-singleuser": not found', ""),
    ],
)
def test_what_is_in_the_place_of_a_volume_is_named(name: str, said: str, sentence: str) -> None:
    message = said.format(name=name)
    pods = [
        make_pod(ended=True, exit_reason="StartError", exit_code=128, exit_message=message),
        make_pod(waiting="RunContainerError", waiting_message=message),
    ]
    assert [why_no_mount_point(pod) for pod in pods] == [sentence, sentence]
    assert sentence in why_hopeless(pods[0])


def test_an_exit_status_is_a_number_that_prints_its_cause() -> None:
    status = ExitStatus(137, why_ended(make_pod(exit_reason="Evicted", exit_message="disk full")))
    assert status == 137
    assert str(status) == "137: the node evicted it: disk full"
    assert ExitStatus(None, "its pod was deleted") == 1


def test_more_gpus_than_the_cluster_has_never_fit() -> None:
    big = make_choice(gpu=5, gpu_product="NVIDIA-A100").profile
    assert why_never_fits(big, INVENTORY) == (
        "Profile One GPU needs 5 nvidia.com/gpu NVIDIA-A100, and the cluster has 4: "
        "choose another profile or ask a cluster administrator."
    )
    assert why_never_fits(big, Inventory.UNKNOWN) == ""
    assert why_never_fits(make_choice(gpu=6).profile, INVENTORY) == ""
    assert why_never_fits(make_choice().profile, Inventory()) == ""


async def read(journal: Journal) -> list[tuple[int, str]]:
    return [step async for step in journal.follow()]


async def test_every_reader_of_a_journal_gets_every_step_until_the_end() -> None:
    journal = Journal()
    journal.tell(5, "one")
    early = asyncio.create_task(read(journal))
    await asyncio.sleep(0)
    journal.tell(40, "two")
    journal.tell(40, "two")  # not said twice
    await asyncio.sleep(0)
    journal.tell(20, "three")  # the percentage stays
    journal.end()
    journal.tell(99, "too late")
    expected = [(5, "one"), (40, "two"), (40, "three")]
    assert [await early, await read(journal)] == [expected, expected]
