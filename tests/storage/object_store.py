"""A gateway of the cluster's Ceph that a test may stop, and what its administrator does there."""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import requests
from botocore.config import Config

from local.commands import run
from local.listeners import find_free_port
from spectrum_spawner.controller.rgw import Gateway, Key

ENTITY = "client.rgw.spectrum-tests"
ADMIN = "spectrum-tests"


class ObjectStore:
    """One more radosgw on the same pools, with an administrator of its own.

    Users of the hub in `hub_namespace`, and those that tests make, go with their buckets.
    """

    def __init__(self, conf: Path, directory: Path, hub_namespace: str) -> None:
        self.port = find_free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.keys = directory / "rgw-admin"
        self._conf = conf
        self._directory = directory
        self._hub_namespace = hub_namespace
        self._made = [ADMIN]
        self._process: subprocess.Popen[bytes] | None = None
        keyring = directory / "keyring"
        rights = ("mon", "allow rw", "osd", "allow rwx")
        run(["ceph", "-c", conf, "auth", "get-or-create", ENTITY, *rights, "-o", keyring])
        if ADMIN in self.list_users():
            self.admin("user", "rm", f"--uid={ADMIN}")
        made = self.admin(
            *("user", "create", f"--uid={ADMIN}", "--display-name=Administrator of tests"),
            "--caps=users=*;buckets=*",
        )
        self.key = Key(access=made["keys"][0]["access_key"], secret=made["keys"][0]["secret_key"])
        self.keys.mkdir()
        self.write_keys(self.key)

    def write_keys(self, key: Key | None = None) -> None:
        """Give the controller this key, by default the right one."""
        key = key or self.key
        (self.keys / "AccessKey").write_text(key.access)
        (self.keys / "SecretKey").write_text(f"{key.secret}\n")

    def start(self) -> None:
        command = [
            *("radosgw", "-f", "-c", self._conf, "-n", ENTITY),
            *("--keyring", self._directory / "keyring", f"--rgw-data={self._directory}"),
            f"--rgw-frontends=beast endpoint=127.0.0.1:{self.port}",
            f"--log-file={self._directory / 'radosgw.log'}",
        ]
        with (self._directory / "radosgw.out").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out)
        deadline = time.monotonic() + 30
        while not self._answers():
            assert time.monotonic() < deadline
            assert self._process.poll() is None

    def stop(self) -> None:
        """End it; one that was killed would be waited for by its peers."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(20)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It takes connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            self.start()
        asyncio.run(self._remove_teams())
        self.stop()
        for user in self._made:
            self.admin("user", "rm", f"--uid={user}", "--purge-data")
        run(["ceph", "-c", self._conf, "auth", "del", ENTITY])

    async def _remove_teams(self) -> None:
        """By the gateway, which is much faster than `radosgw-admin`."""
        gateway = Gateway(self.endpoint, "us-east-1", lambda: self.key)
        for name in self.list_users():
            user = await gateway.find_user(name)
            if user is not None and f"of the hub in {self._hub_namespace}," in user.display_name:
                await gateway.purge_bucket(name)
                await gateway.remove_user(name)
        await gateway.close()

    def admin(self, *words: str) -> Any:
        """What `radosgw-admin` says, read as JSON."""
        answer = run(["radosgw-admin", "-c", self._conf, *words])
        return json.loads(answer) if answer.strip() else None

    def list_users(self) -> set[str]:
        return set(self.admin("user", "list"))

    def list_buckets(self) -> set[str]:
        return set(self.admin("bucket", "list"))

    def create_user(self, name: str) -> Key:
        """Somebody else's user."""
        self._made.append(name)
        made = self.admin("user", "create", f"--uid={name}", "--display-name=Somebody else")
        return Key(access=made["keys"][0]["access_key"], secret=made["keys"][0]["secret_key"])

    def connect(self, key: Key) -> Any:
        """An S3 client, which asks once."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=key.access,
            aws_secret_access_key=key.secret,
            config=Config(retries={"total_max_attempts": 1}),
        )

    def _answers(self) -> bool:
        try:
            return requests.get(self.endpoint, timeout=5).ok
        except requests.ConnectionError:
            return False
