"""A team's bucket from inside its servers, by nothing but what their environment says."""

import json
from typing import Any

from local.kubectl import Kubectl
from tests.cluster.servers import OPS_CPU, Servers
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease

USE = """
import json, os, subprocess, sys
import boto3, botocore.exceptions, s3fs
own, other = os.environ["BUCKET_NAME"], sys.argv[1]
client = boto3.client("s3")
client.put_object(Bucket=own, Key="by/boto3", Body=b"hello")
with s3fs.S3FileSystem().open(f"{own}/by/s3fs", "wb") as file:
    file.write(b"hello")
command = ["aws", "s3", "cp", f"s3://{own}/by/boto3", f"s3://{own}/by/aws"]
subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
try:
    client.put_object(Bucket=other, Key="a", Body=b"")
    refusal = ""
except botocore.exceptions.ClientError as error:
    refusal = error.response["Error"]["Code"]
found = s3fs.S3FileSystem().ls(f"{own}/by")
print(json.dumps({"found": sorted(found), "refusal": refusal}))
"""


def find_bucket(kubectl: Kubectl, release: InstalledRelease, team: str) -> str:
    """The name of a team's bucket, once that is ready."""

    def find() -> str:
        found: dict[str, Any] = kubectl.get("-n", release.namespace, "team", team)
        bucket = found["status"].get("storage", {}).get("bucket", {})
        return bucket["name"] if bucket.get("ready") else ""

    return str(wait_until(find))


def test_servers_use_their_teams_bucket_without_settings_and_no_other(
    kubectl: Kubectl, release: InstalledRelease, bob: Servers
) -> None:
    own, other = (find_bucket(kubectl, release, team) for team in ("ops", "flight"))
    bob.start(OPS_CPU)
    assert json.loads(bob.run("ops", "python3", "-c", USE, other)) == {
        "found": [f"{own}/by/aws", f"{own}/by/boto3", f"{own}/by/s3fs"],
        "refusal": "AccessDenied",
    }
