"""What a Ceph of one machine is told: its configuration file, its keys, its clients' rights."""

import base64
import secrets
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE_SYSTEM = "myfs"
METADATA_POOL = "myfs-metadata"
# The names that Rook gives the pools of its example objects.
DATA_POOL = "myfs-replicated"
BLOCK_POOL = "replicapool"
VOLUME_GROUP = "csi"
# The user of the object gateway who may manage users and buckets.
ADMIN_USER = "spectrum-admin"

# Modules of the manager that nothing here asks; each takes memory of its own. Those that Ceph calls
# always on stay: without one of them it says that its health is bad.
UNUSED_MODULES = (
    *("alerts", "cephadm", "dashboard", "diskprediction_local", "influx", "insights", "iostat"),
    *("k8sevents", "localpool", "mds_autoscaler", "mirroring", "nfs", "osd_perf_query"),
    *("osd_support", "prometheus", "restful", "rook", "selftest", "snap_schedule", "stats"),
    *("telegraf", "test_orchestrator", "zabbix"),
)

# Settings of the OSD's database: Ceph's own, with buffers of 32 MiB instead of 256.
DATABASE = {
    "compression": "kNoCompression",
    "max_write_buffer_number": 4,
    "min_write_buffer_number_to_merge": 1,
    "recycle_log_file_num": 4,
    "write_buffer_size": 32 * 2**20,
    "writable_file_max_buffer_size": 0,
    "compaction_readahead_size": 2 * 2**20,
    "max_background_compactions": 2,
    "max_total_wal_size": 128 * 2**20,
}
# Ceph is built for an allocator that gives memory back; the C library's keeps it in an arena for
# each thread, unless it is told not to.
ENVIRONMENT = {"MALLOC_ARENA_MAX": "2", "MALLOC_TRIM_THRESHOLD_": "131072"}


@dataclass(frozen=True)
class Ports:
    """TCP ports that Ceph listens on; manager, OSD and MDS take free ones from `others`."""

    monitor: int = 3300
    monitor_v1: int = 6789
    gateway: int = 7480
    others: range = range(6800, 7301)


PORTS = Ports()

_CSI_FILES = {
    "mgr": "allow rw",
    "osd": f"allow rw tag cephfs metadata={FILE_SYSTEM}, allow rw tag cephfs data={FILE_SYSTEM}",
    # What is not a claim's volume, as a dataset, may be read alone.
    "mds": f"allow r fsname={FILE_SYSTEM} path=/volumes, "
    f"allow rws fsname={FILE_SYSTEM} path=/volumes/{VOLUME_GROUP}",
    "mon": f"allow r fsname={FILE_SYSTEM}",
}
_CSI_BLOCKS = {
    "mgr": f"profile rbd pool={BLOCK_POOL}",
    "osd": f"profile rbd pool={BLOCK_POOL}",
    "mon": "profile rbd",
}
# entity → capabilities; those of osd.0 are what `ceph osd new` would give.
RIGHTS: Mapping[str, Mapping[str, str]] = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *", "mds": "allow *", "mgr": "allow *"},
    "mgr.local": {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"},
    "osd.0": {"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"},
    "mds.local": {
        "mon": "allow profile mds",
        "osd": "allow *",
        "mds": "allow *",
        "mgr": "allow profile mds",
    },
    "client.rgw.local": {"mon": "allow rw", "osd": "allow rwx"},
    "client.csi-cephfs-provisioner": _CSI_FILES,
    "client.csi-cephfs-node": _CSI_FILES,
    "client.csi-rbd-provisioner": _CSI_BLOCKS,
    "client.csi-rbd-node": _CSI_BLOCKS,
}


def make_key() -> str:
    """Make a new cephx key: AES, the time it was made, 16 random bytes."""
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    header = struct.pack("<HIIH", 1, seconds, nanoseconds, 16)
    return base64.b64encode(header + secrets.token_bytes(16)).decode()


def make_keyring(keys: Mapping[str, str], rights: Mapping[str, Mapping[str, str]]) -> str:
    """Build a keyring: entity → key, with the capabilities of entities that have any."""
    lines = []
    for entity, key in keys.items():
        lines += [f"[{entity}]", f"\tkey = {key}"]
        lines += [
            f'\tcaps {service} = "{text}"' for service, text in rights.get(entity, {}).items()
        ]
    return "".join(f"{line}\n" for line in lines)


def make_configuration(
    directory: Path, sockets: Path, address: str, ports: Ports, fsid: str
) -> str:
    """Build ceph.conf for one monitor, manager, OSD, MDS and gateway in the directory."""
    monitor = f"v2:{address}:{ports.monitor}/0,v1:{address}:{ports.monitor_v1}/0"
    sections: dict[str, dict[str, object]] = {
        "global": {
            "fsid": fsid,
            "mon_host": f"[{monitor}]",
            "public_addr": address,
            "cluster_addr": address,
            "ms_bind_port_min": ports.others.start,
            "ms_bind_port_max": ports.others.stop - 1,
            "keyring": directory / "keyrings" / "$name.keyring",
            "run_dir": sockets,
            "admin_socket": sockets / "$name.asok",
            "pid_file": "",
            "crash_dir": directory / "crash",
            # What they say on standard error is in the cluster's logs.
            "log_to_stderr": "true",
            "log_to_file": "false",
            "mon_cluster_log_to_file": "false",
            "auth_allow_insecure_global_id_reclaim": "false",
            # One disk has one copy.
            "osd_pool_default_size": 1,
            "osd_pool_default_min_size": 1,
            "osd_crush_chooseleaf_type": 0,
            "mon_allow_pool_size_one": "true",
            "mon_warn_on_pool_no_redundancy": "false",
            "osd_pool_default_pg_num": 4,
            "osd_pool_default_pgp_num": 4,
            "rgw_rados_pool_pg_num_min": 2,
            "osd_pool_default_pg_autoscale_mode": "off",
        },
        "mon": {
            "mon_data": directory / "mon",
            "keyring": directory / "mon" / "keyring",
            # A laptop's disk is full of other things.
            "mon_data_avail_warn": 2,
            "mon_data_avail_crit": 1,
            "mgr_initial_modules": "",
            # One monitor waits for no other one before it commits.
            "paxos_propose_interval": 0.05,
            "paxos_min_wait": 0.01,
        },
        "mgr": {
            "mgr_data": directory / "mgr",
            "mgr_disabled_modules": ",".join(UNUSED_MODULES),
        },
        "osd": {
            "osd_data": directory / "osd",
            "osd_objectstore": "bluestore",
            # A sparse file: it takes what is stored in it.
            "bluestore_block_size": 16 * 2**30,
            # A start reads this log twice.
            "bluefs_log_compact_min_size": 2**20,
            "bluestore_cache_autotune": "false",
            "bluestore_cache_size": 64 * 2**20,
            "bluestore_rocksdb_options": ",".join(
                f"{key}={value}" for key, value in DATABASE.items()
            ),
            "osd_client_message_size_cap": 64 * 2**20,
            "osd_min_pg_log_entries": 100,
            "osd_max_pg_log_entries": 500,
            "osd_pg_log_dups_tracked": 500,
        },
        "mds": {
            "mds_data": directory / "mds",
            "mds_cache_memory_limit": 128 * 2**20,
            # Clients of a machine that was switched off do not come back.
            "mds_reconnect_timeout": 8,
        },
        "client": {"admin_socket": ""},
        "client.rgw.local": {
            "rgw_data": directory / "rgw",
            "rgw_frontends": f"beast endpoint={address}:{ports.gateway}",
            "rgw_thread_pool_size": 32,
        },
    }
    text = ""
    for section, options in sections.items():
        text += f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in options.items())
    return text
