import base64
import configparser
import struct
import time
from pathlib import Path

import pytest
import yaml

from local import ceph_objects
from local.ceph_config import (
    RIGHTS,
    UNUSED_MODULES,
    Ports,
    make_configuration,
    make_key,
    make_keyring,
)
from local.ceph_objects import (
    make_classes,
    make_csi_secret,
    make_driver,
    make_gateway_service,
)
from local.csi import CLUSTER_ID, DRIVERS
from local.dataset import PATH
from local.errors import Refusal
from local.network import NODE_ADDRESS
from local.paths import CHECKOUT
from local.preflight import CEPH_PORTS, check_devices, check_no_ceph


def read_values(name):
    return yaml.safe_load((CHECKOUT / "local" / name).read_text())["storage"]


def read_configuration(**ports):
    text = make_configuration(Path("/state/ceph"), Path("/run/c"), "10.0.0.1", Ports(**ports), "f1")
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    return parser


# configuration


def test_a_key_is_one_that_ceph_could_have_made():
    kind, seconds, nanoseconds, length = struct.unpack("<HIIH", base64.b64decode(make_key())[:12])
    assert (kind, length, nanoseconds < 10**9) == (1, 16, True)
    assert abs(seconds - time.time()) < 60
    assert make_key() != make_key()


def test_a_keyring_names_each_entity_with_its_key_and_rights():
    rights = {"mgr.x": {"mon": "allow profile mgr", "osd": "allow *"}}
    assert make_keyring({"client.a": "AQ==", "mgr.x": "AR=="}, rights) == (
        "[client.a]\n"
        "\tkey = AQ==\n"
        "[mgr.x]\n"
        "\tkey = AR==\n"
        '\tcaps mon = "allow profile mgr"\n'
        '\tcaps osd = "allow *"\n'
    )


def test_the_csi_driver_may_write_volumes_and_read_datasets_alone():
    assert RIGHTS["client.csi-cephfs-node"]["mds"] == (
        "allow r fsname=myfs path=/volumes, allow rws fsname=myfs path=/volumes/csi"
    )
    assert RIGHTS["client.csi-rbd-node"] == {
        "mon": "profile rbd",
        "mgr": "profile rbd pool=replicapool",
        "osd": "profile rbd pool=replicapool",
    }


def test_ceph_listens_on_the_nodes_address_alone():
    found = read_configuration(monitor=1, monitor_v1=2, gateway=3, others=range(10, 21))
    assert {key: found["global"][key] for key in ("mon_host", "public_addr", "cluster_addr")} == {
        "mon_host": "[v2:10.0.0.1:1/0,v1:10.0.0.1:2/0]",
        "public_addr": "10.0.0.1",
        "cluster_addr": "10.0.0.1",
    }
    assert found["client.rgw.local"]["rgw_frontends"] == "beast endpoint=10.0.0.1:3"
    assert (found["global"]["ms_bind_port_min"], found["global"]["ms_bind_port_max"]) == (
        "10",
        "20",
    )


def test_all_that_ceph_stores_lies_in_its_directory():
    found = read_configuration()
    places = {
        section: found[section][f"{section}_data"] for section in ("mon", "mgr", "osd", "mds")
    }
    assert places == {name: f"/state/ceph/{name}" for name in places}
    assert found["global"]["keyring"] == "/state/ceph/keyrings/$name.keyring"
    assert found["global"]["admin_socket"] == "/run/c/$name.asok"


def test_the_manager_keeps_the_module_that_makes_volumes():
    assert read_configuration()["mgr"]["mgr_disabled_modules"] == ",".join(UNUSED_MODULES)
    assert "volumes" not in UNUSED_MODULES


# Kubernetes objects


def test_drivers_have_the_names_that_rook_gives():
    names = [ceph_objects.FILES_DRIVER, ceph_objects.BLOCKS_DRIVER]
    assert names == ["rook-ceph.cephfs.csi.ceph.com", "rook-ceph.rbd.csi.ceph.com"]
    assert list(DRIVERS.values()) == names
    assert make_driver(names[0]) == {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "rook-ceph.cephfs.csi.ceph.com"},
        "spec": {
            "attachRequired": False,
            "podInfoOnMount": False,
            "fsGroupPolicy": "File",
            "volumeLifecycleModes": ["Persistent"],
        },
    }


def test_both_classes_let_claims_grow_and_name_their_secrets():
    secrets = {
        "csi.storage.k8s.io/provisioner-secret-name": "rook-csi-cephfs-provisioner",
        "csi.storage.k8s.io/provisioner-secret-namespace": "rook-ceph",
        "csi.storage.k8s.io/controller-expand-secret-name": "rook-csi-cephfs-provisioner",
        "csi.storage.k8s.io/controller-expand-secret-namespace": "rook-ceph",
        "csi.storage.k8s.io/node-stage-secret-name": "rook-csi-cephfs-node",
        "csi.storage.k8s.io/node-stage-secret-namespace": "rook-ceph",
    }
    files, blocks = make_classes()
    assert files == {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "rook-cephfs"},
        "provisioner": "rook-ceph.cephfs.csi.ceph.com",
        "parameters": {
            "clusterID": CLUSTER_ID,
            "fsName": "myfs",
            "pool": "myfs-replicated",
            **secrets,
        },
        "reclaimPolicy": "Delete",
        "allowVolumeExpansion": True,
        "volumeBindingMode": "Immediate",
    }
    assert blocks == {
        **files,
        "metadata": {"name": "rook-ceph-block"},
        "provisioner": "rook-ceph.rbd.csi.ceph.com",
        "parameters": {
            "clusterID": CLUSTER_ID,
            "pool": "replicapool",
            "imageFormat": "2",
            "imageFeatures": "layering",
            "csi.storage.k8s.io/fstype": "xfs",
            **{key: value.replace("cephfs", "rbd") for key, value in secrets.items()},
        },
    }


def test_a_secret_of_the_driver_holds_user_and_key_as_static_volumes_need_them():
    assert make_csi_secret("rook-csi-cephfs-node", "csi-cephfs-node", "AQ==") == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "rook-csi-cephfs-node", "namespace": "rook-ceph"},
        "data": {
            "userID": base64.b64encode(b"csi-cephfs-node").decode(),
            "userKey": base64.b64encode(b"AQ==").decode(),
        },
    }


def test_the_gateway_has_the_service_that_rook_gives_it():
    metadata = {"name": "rook-ceph-rgw-my-store", "namespace": "rook-ceph"}
    labels = {"kubernetes.io/service-name": "rook-ceph-rgw-my-store"}
    assert make_gateway_service("10.0.0.1", 7480) == [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"ports": [{"name": "http", "port": 7480, "targetPort": 7480}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 7480, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
        },
    ]


# the demo's values


def test_the_demo_names_the_gateway_and_the_dataset_that_are_made():
    values = read_values("values.yaml")
    assert values["bucket"]["endpoint"] == "http://rook-ceph-rgw-my-store.rook-ceph.svc:7480"
    assert values["bucket"]["peers"] == [{"ipBlock": {"cidr": f"{NODE_ADDRESS}/32"}}]
    assert [one["path"] for one in values["datasets"].values()] == [f"/{PATH}"]


def test_the_demo_without_ceph_asks_for_nothing_of_it():
    assert read_values("values-no-ceph.yaml") == {
        "home": {"storageClass": "standard"},
        "share": {"storageClass": "standard"},
        "scratch": {"storageClass": "standard"},
        "bucket": {"enabled": False},
        "datasets": dict.fromkeys(read_values("values.yaml")["datasets"]),
    }


# refusals


def test_ports_of_ceph_are_looked_at_before_a_start():
    assert CEPH_PORTS == {3300: "ceph-mon", 6789: "ceph-mon", 7480: "ceph-rgw"}


def test_a_machine_that_cannot_mount_volumes_is_refused():
    with pytest.raises(Refusal) as refusal:
        check_devices({"no-such-module": Path("/dev/no-such-device")})
    assert str(refusal.value) == (
        "/dev/no-such-device is missing, and volumes of Ceph need it: load the kernel module "
        "no-such-module, or run local/up --no-ceph"
    )


def test_volumes_that_are_on_ceph_keep_it(tmp_path):
    check_no_ceph(tmp_path)
    (tmp_path / "ceph").mkdir()
    with pytest.raises(Refusal) as refusal:
        check_no_ceph(tmp_path)
    assert str(refusal.value) == (
        f"the volumes of {tmp_path} are on its Ceph: run without --no-ceph, or remove them with "
        "local/down --purge first"
    )
