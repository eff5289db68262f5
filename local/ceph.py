"""A real Ceph on this machine: monitor, manager, OSD, MDS and object gateway, without systemd."""

import http.client
import json
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.ceph_config import (
    ADMIN_USER,
    BLOCK_POOL,
    DATA_POOL,
    ENVIRONMENT,
    FILE_SYSTEM,
    METADATA_POOL,
    PORTS,
    RIGHTS,
    VOLUME_GROUP,
    Ports,
    make_configuration,
    make_key,
    make_keyring,
)
from local.commands import run, succeeds
from local.files import write_if_changed
from local.processes import Daemons
from local.progress import Step

# In the order in which they stop: each goes before those that it needs.
NAMES = ("ceph-rgw", "ceph-mds", "ceph-osd", "ceph-mgr", "ceph-mon")


class Ceph:
    """The Ceph of one state directory.

    Whatever step a killed start has reached, the next one goes on there; data that was made stays.
    """

    def __init__(
        self,
        state: Path,
        daemons: Daemons,
        *,
        address: str,
        sockets: Path,
        ports: Ports = PORTS,
    ) -> None:
        """`address` is where all of it listens; `sockets` is a directory with a short path."""
        self.directory = state / "ceph"
        self.address = address
        self.ports = ports
        self.daemons = daemons
        self._sockets = sockets

    @property
    def conf(self) -> Path:
        return self.directory / "ceph.conf"

    @property
    def monitors(self) -> str:
        """The monitor's address as clients of messenger version 1 take it."""
        return f"{self.address}:{self.ports.monitor_v1}"

    @property
    def gateway(self) -> str:
        """The URL of the object gateway."""
        return f"http://{self.address}:{self.ports.gateway}"

    def find_key(self, entity: str) -> str:
        """Return the key of an entity, as `client.csi-cephfs-node`."""
        return str(self._read_keys()[entity])

    def serves_volumes(self) -> bool:
        """Tell whether the processes run without which a volume cannot be read or written."""
        return all(self.daemons.is_alive(name) for name in ("ceph-mon", "ceph-osd", "ceph-mds"))

    def start(self, step: Step) -> None:
        """Start what does not run, and return once volumes and buckets can be used."""
        self._prepare()
        self._start_monitor(step)
        self._ensure("ceph-mgr", "-i", "local")
        step.awaited = "the OSD"
        self._start_osd()
        self._make_pools(step)
        self._ensure("ceph-mds", "-i", "local")
        self._ensure("ceph-rgw", "-n", "client.rgw.local", program="radosgw")
        step.wait_while(self._name_awaited, timeout=120, hint=self._name_ended)
        self._make_group(step)
        self._make_admin(step)

    def stop(self) -> None:
        """Stop its processes; file systems of it that are mounted must be gone before.

        A kill after the grace loses nothing: what any of them has confirmed is on disk.
        """
        if self.serves_volumes():
            # The manager ends without a word to the MDS, which would wait for it at its next start.
            evict = ("tell", "mds.local", "session", "evict")
            succeeds(["timeout", "5", "ceph", *self._options, *evict])
        for name in NAMES:
            self.daemons.stop(name, grace=3)

    def ceph(self, *words: str | Path) -> str:
        """Run a command of the `ceph` tool as the administrator."""
        return run(["ceph", *self._options, "--connect-timeout", "20", *words])

    def list_gateway_users(self) -> list[str]:
        users: list[str] = json.loads(self._manage_gateway("user", "list"))
        return users

    def remove_gateway_user(self, name: str) -> None:
        """Remove a user of the gateway with all buckets; that there is none is fine."""
        if name in self.list_gateway_users():
            self._manage_gateway("user", "rm", f"--uid={name}", "--purge-data")

    def find_admin(self) -> dict[str, str]:
        """Return access key and secret key of the gateway's user who may manage users."""
        keys = self._read_keys()
        return {"AccessKey": keys["AccessKey"], "SecretKey": keys["SecretKey"]}

    def _prepare(self) -> None:
        """Write keys and configuration that are not there yet."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("keyrings", "mgr", "mds", "rgw", "crash"):
            (self.directory / name).mkdir(exist_ok=True)
        self._sockets.mkdir(parents=True, exist_ok=True)
        keys = self._make_keys()
        for entity in RIGHTS:
            keyring = make_keyring({entity: keys[entity]}, {})
            write_if_changed(self.directory / "keyrings" / f"{entity}.keyring", keyring)
        text = make_configuration(
            self.directory, self._sockets, self.address, self.ports, keys["fsid"]
        )
        write_if_changed(self.conf, text)

    def _make_keys(self) -> dict[str, str]:
        """Return the keys of all entities; those that are new are made and noted."""
        keys = self._read_keys()
        missing = [entity for entity in RIGHTS if entity not in keys]
        keys |= {entity: make_key() for entity in missing}
        for name in ("fsid", "osd"):
            keys.setdefault(name, str(uuid.uuid4()))
        for name in ("AccessKey", "SecretKey"):
            keys.setdefault(name, uuid.uuid4().hex)
        if keys != self._read_keys():
            new = self._keys.with_suffix(".new")
            new.write_text(json.dumps(keys, indent=2))
            new.replace(self._keys)
        return keys

    def _read_keys(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._keys.read_text()) if self._keys.exists() else {}
        return found

    @property
    def _options(self) -> list[str]:
        return ["-c", str(self.conf)]

    @property
    def _keys(self) -> Path:
        return self.directory / "keys.json"

    def _start_monitor(self, step: Step) -> None:
        keys = self._read_keys()
        everybody = self.directory / "everybody.keyring"
        write_if_changed(everybody, make_keyring({e: keys[e] for e in RIGHTS}, RIGHTS))
        if not (self.directory / "mon").exists():
            step.awaited = "the monitor's database"
            self._make_monitor(keys["fsid"], everybody)
        if self._ensure("ceph-mon", "-i", "local"):
            step.awaited = "the monitor"
            self.ceph("auth", "import", "-i", everybody)

    def _make_monitor(self, fsid: str, everybody: Path) -> None:
        monmap = self.directory / "monmap"
        address = f"[v2:{self.address}:{self.ports.monitor},v1:{self.monitors}]"
        run(
            [
                "monmaptool",
                "--create",
                "--clobber",
                "--fsid",
                fsid,
                "--addv",
                "local",
                address,
                monmap,
            ]
        )
        with self._make_whole("mon") as directory:
            words = ("--mkfs", "-i", "local", "--monmap", monmap, "--mon-data", directory)
            run(["ceph-mon", *self._options, *words, "--keyring", everybody])

    def _start_osd(self) -> None:
        if not (self.directory / "osd").exists():
            name = self._read_keys()["osd"]
            self.ceph("osd", "new", name, "0")
            with self._make_whole("osd") as directory:
                words = ("--mkfs", "-i", "0", "--osd-uuid", name, "--osd-data", directory)
                run(["ceph-osd", *self._options, *words])
        self._ensure("ceph-osd", "-i", "0")

    @contextmanager
    def _make_whole(self, name: str) -> Iterator[Path]:
        """Give the block a directory that gets its name when the block has ended well.

        What a killed start left is removed; what still writes into that is none of it.
        """
        for left in self.directory.glob(f"{name}-new-*"):
            shutil.rmtree(left, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix=f"{name}-new-", dir=self.directory))
        yield new
        new.rename(self.directory / name)

    def _make_pools(self, step: Step) -> None:
        if (self.directory / "pools-made").exists():
            return
        step.awaited = "pools and the file system"
        for pool in (METADATA_POOL, DATA_POOL, BLOCK_POOL):
            self.ceph("osd", "pool", "create", pool)
        self.ceph("fs", "new", FILE_SYSTEM, METADATA_POOL, DATA_POOL)
        self.ceph("osd", "pool", "application", "enable", BLOCK_POOL, "rbd")
        self._finish("pools")

    def _make_group(self, step: Step) -> None:
        """Make the group of volumes, unless it is there.

        This asks the manager and the MDS at each start: the monitor goes on saying for a while that
        killed ones are up.
        """
        step.awaited = "the group of volumes"
        words = ("fs", "subvolumegroup", "create", FILE_SYSTEM, VOLUME_GROUP)
        command = ["ceph", *self._options, *words]
        if not succeeds(command):
            # The MDS shuts out a manager that was too slow to come back to it.
            self.daemons.stop("ceph-mgr")
            self._ensure("ceph-mgr", "-i", "local")
            step.wait_for("the manager", lambda: succeeds(command), timeout=60)

    def _make_admin(self, step: Step) -> None:
        if (self.directory / "admin-made").exists():
            return
        step.awaited = "the gateway's administrator"
        if ADMIN_USER not in self.list_gateway_users():
            admin = self.find_admin()
            self._manage_gateway(
                *("user", "create", f"--uid={ADMIN_USER}", "--display-name=Spectrum"),
                *(f"--access-key={admin['AccessKey']}", f"--secret={admin['SecretKey']}"),
                "--caps=users=*;buckets=*",
            )
        self._finish("admin")

    def _manage_gateway(self, *words: str) -> str:
        return run(["radosgw-admin", *self._options, *words])

    def _finish(self, part: str) -> None:
        (self.directory / f"{part}-made").touch()

    def _ensure(self, name: str, *words: str, program: str = "") -> bool:
        command = [program or name, *self._options, *words, "-f"]
        return self.daemons.ensure(
            name, command, environment=ENVIRONMENT, configuration=[self.conf]
        )

    def _name_awaited(self) -> str:
        """Name what does not serve yet; an empty text means that all does."""
        status = json.loads(self.ceph("status", "--format", "json"))
        if not status["mgrmap"]["available"]:
            return "the manager"
        if not any(mds["status"] == "up:active" for mds in status["fsmap"]["by_rank"]):
            return "the MDS"
        return "" if self._answers() else "the object gateway"

    def _answers(self) -> bool:
        """Tell whether the object gateway answers."""
        connection = http.client.HTTPConnection(self.address, self.ports.gateway, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _name_ended(self) -> str:
        """Say which process has ended, and why."""
        ended = [name for name in NAMES if not self.daemons.is_alive(name)]
        return "; ".join(f"{name} ended: {self.daemons.read_last_line(name)}" for name in ended)
