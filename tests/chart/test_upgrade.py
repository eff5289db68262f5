"""Releases on a real API server: what an upgrade keeps and what an uninstall leaves."""

import base64
import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.binaries import ensure_kube
from local.control_plane import control_plane
from tests.chart.helm import ACCEPTED, CHART, OAUTH, Helm, HelmError, merge

TEAMS = {"teams": {"flight": {"displayName": "Flight"}, "ops": {"quota": {"cpu": "500m"}}}}
FULL = merge(ACCEPTED, TEAMS)
DEPLOYMENTS = ("hub", "proxy", "controller", "service")
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with control_plane() as plane:
        yield plane.kubeconfig


@pytest.fixture
def release(helm: Helm, kubeconfig: Path) -> "Release":
    """A release of its own for each test, in a namespace of its own."""
    return Release(helm, kubeconfig, f"release-{next(NUMBERS)}")


class Release:
    """The chart, installed where nothing runs its pods."""

    def __init__(self, helm: Helm, kubeconfig: Path, namespace: str) -> None:
        self.helm, self.kubeconfig, self.namespace = helm, kubeconfig, namespace

    def upgrade(self, values: dict[str, Any] = FULL, *more: str) -> str:
        return self.helm.upgrade(self.kubeconfig, self.namespace, values, *more)

    def uninstall(self) -> None:
        self.helm.uninstall(self.kubeconfig, self.namespace)

    def kubectl(self, *arguments: str, text: str = "") -> str:
        program = [str(ensure_kube()), "kubectl", "--kubeconfig", str(self.kubeconfig)]
        whole = [*program, "-n", self.namespace, *arguments]
        result = subprocess.run(whole, input=text, capture_output=True, text=True, check=True)
        return result.stdout

    def get(self, kind: str, name: str) -> Any:
        return json.loads(self.kubectl("get", kind, name, "-o", "json"))

    def secrets(self) -> dict[str, str]:
        data = self.get("secret", "hub")["data"]
        return {key: base64.b64decode(text).decode() for key, text in data.items()}

    def annotations(self, deployment: str) -> dict[str, str]:
        """What decides whether the deployment's pod is replaced."""
        found = self.get("deployment", deployment)["spec"]["template"]["metadata"]["annotations"]
        return dict(found)

    def names(self, kind: str) -> list[str]:
        return self.kubectl("get", kind, "-o", "jsonpath={.items[*].metadata.name}").split()


def test_the_first_install_makes_every_secret(release: Release) -> None:
    release.upgrade()
    secrets = release.secrets()
    assert {key: len(text) for key, text in secrets.items()} == {
        "proxyToken": 64,
        "cookieSecret": 64,
        "cryptKey": 64,
        "userPassword": 16,
        "adminPassword": 40,
        "serviceToken": 64,
        "serviceCookieSecret": 64,
        "auditTokenHub": 64,
        "auditTokenController": 64,
    }
    for key in ("cookieSecret", "cryptKey", "serviceCookieSecret"):
        assert len(bytes.fromhex(secrets[key])) == 32
    assert len(set(secrets.values())) == len(secrets)


def test_an_upgrade_keeps_the_secrets_and_restarts_nothing(release: Release) -> None:
    release.upgrade()
    before = release.secrets(), *map(release.annotations, DEPLOYMENTS)
    release.upgrade()
    assert (release.secrets(), *map(release.annotations, DEPLOYMENTS)) == before


def test_a_password_that_an_administrator_changed_is_kept_and_restarts_the_hub_alone(
    release: Release,
) -> None:
    release.upgrade()
    before = {name: release.annotations(name) for name in DEPLOYMENTS}
    changed = json.dumps({"stringData": {"userPassword": "correct horse battery"}})
    release.kubectl("patch", "secret", "hub", "--patch", changed)

    release.upgrade()

    assert release.secrets()["userPassword"] == "correct horse battery"
    assert [name for name in before if release.annotations(name) != before[name]] == ["hub"]


@pytest.mark.parametrize(
    ("change", "restarted"),
    [
        ({"op": "remove", "path": "/data/cryptKey"}, ["hub"]),
        ({"op": "remove", "path": "/data/auditTokenController"}, ["controller", "service"]),
        ({"op": "replace", "path": "/data/serviceToken", "value": ""}, ["hub", "service"]),
    ],
    ids=lambda given: given["path"] if isinstance(given, dict) else "",
)
def test_a_secret_that_is_missing_or_empty_is_made_and_the_others_stay(
    release: Release, change: dict[str, str], restarted: list[str]
) -> None:
    release.upgrade()
    secrets = release.secrets()
    before = {name: release.annotations(name) for name in DEPLOYMENTS}
    release.kubectl("patch", "secret", "hub", "--type=json", "--patch", json.dumps([change]))

    release.upgrade()

    after = release.secrets()
    assert after.keys() == secrets.keys()
    changed = [key for key in secrets if secrets[key] != after[key]]
    assert changed == [change["path"].removeprefix("/data/")]
    assert after[changed[0]]
    assert [name for name in before if release.annotations(name) != before[name]] == restarted


def test_the_client_secret_is_kept_until_values_bring_another(release: Release) -> None:
    release.upgrade(OAUTH)
    assert release.secrets()["oauthClientSecret"] == "of the provider"
    before = {name: release.annotations(name) for name in DEPLOYMENTS}

    release.upgrade(merge(OAUTH, {"auth": {"oauth": {"clientSecret": ""}}}))
    assert release.secrets()["oauthClientSecret"] == "of the provider"
    assert {name: release.annotations(name) for name in DEPLOYMENTS} == before

    release.upgrade(merge(OAUTH, {"auth": {"oauth": {"clientSecret": "a new one"}}}))
    assert release.secrets()["oauthClientSecret"] == "a new one"
    assert [name for name in before if release.annotations(name) != before[name]] == ["hub"]


def test_a_client_secret_that_was_put_into_the_cluster_need_not_be_in_values(
    release: Release,
) -> None:
    release.upgrade()
    text = json.dumps({"stringData": {"oauthClientSecret": "by hand"}})
    release.kubectl("patch", "secret", "hub", "--patch", text)
    release.upgrade(merge(OAUTH, {"auth": {"oauth": {"clientSecret": ""}}}))
    assert release.secrets()["oauthClientSecret"] == "by hand"


def test_what_was_granted_and_chosen_for_a_team_outlives_an_upgrade(release: Release) -> None:
    release.upgrade()
    grant = {"profiles": ["gpu-1"], "until": "2030-01-31T18:00:00Z", "approvedBy": "admin"}
    chosen = {"grants": {"r1": grant}, "defaultProfile": "gpu-1", "idle": {"minutes": 60}}
    patch = json.dumps({"spec": chosen})
    release.kubectl("patch", "team", "ops", "--type=merge", "--patch", patch)
    release.upgrade(merge(FULL, {"teams": {"ops": {"quota": {"cpu": "1"}}}}))
    assert release.get("team", "ops")["spec"] == {"quota": {"cpu": "1"}, **chosen}


def test_teams_come_with_the_values_and_stay_until_they_are_deleted(release: Release) -> None:
    assert "delete team" not in release.upgrade()
    assert release.names("teams") == ["flight", "ops"]
    assert release.get("team", "ops")["spec"] == {"quota": {"cpu": "500m"}}
    without = merge(FULL, {"teams": {"ops": None}})
    notes = release.upgrade(without)
    assert release.names("teams") == ["flight", "ops"]
    assert f"kubectl -n {release.namespace} delete team ops\n" in notes
    release.kubectl("delete", "team", "ops")
    assert "delete team" not in release.upgrade(without)


def test_an_uninstall_leaves_both_databases_and_an_install_takes_them_up(
    release: Release,
) -> None:
    def read_uids() -> list[str]:
        return [release.get("pvc", name)["metadata"]["uid"] for name in release.names("pvc")]

    release.upgrade()
    before = read_uids()
    release.uninstall()
    assert release.names("pvc") == ["hub-db", "service-db"]
    assert release.names("deployments") == []
    release.upgrade()
    assert read_uids() == before


@pytest.fixture
def definition_without_lead_groups(release: Release) -> Iterator[None]:
    """The cluster's Team definition is that of an earlier version."""
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/leadGroups"
    older = json.dumps([{"op": "remove", "path": path}])
    release.upgrade()
    release.kubectl("patch", "crd", "teams.spectrum.dev", "--type=json", "--patch", older)
    yield
    release.kubectl("replace", "-f", str(CHART / "crds" / "teams.yaml"))


@pytest.mark.usefixtures("definition_without_lead_groups")
def test_what_an_older_definition_would_drop_stops_the_upgrade(release: Release) -> None:
    release.upgrade(merge(FULL, {"teams": {"ops": {"leads": ["bob"]}}}))
    with pytest.raises(HelmError, match=r"teams\.ops\.leadGroups: the Team definition that this"):
        release.upgrade(merge(FULL, {"teams": {"ops": {"leadGroups": ["leads"]}}}))


@pytest.fixture
def definition_without_shares(release: Release) -> Iterator[None]:
    """The cluster's Team definition knows homes, and no other storage."""
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties"
    removed = [f"{path}/storage/properties/share", f"{path}/quota/properties/storage"]
    older = json.dumps([{"op": "remove", "path": path} for path in removed])
    release.upgrade()
    release.kubectl("patch", "crd", "teams.spectrum.dev", "--type=json", "--patch", older)
    yield
    release.kubectl("replace", "-f", str(CHART / "crds" / "teams.yaml"))


@pytest.mark.usefixtures("definition_without_shares")
def test_what_an_older_definition_would_drop_deep_inside_stops_the_upgrade(
    release: Release,
) -> None:
    known = {"storage": {"home": {"size": "20Gi"}}, "quota": {"gpus": {"nvidia.com/gpu": 1}}}
    release.upgrade(merge(FULL, {"teams": {"ops": known}}))
    for place, team in (
        ("storage.share", {"storage": {"share": {"size": "20Gi"}}}),
        ("quota.storage", {"quota": {"storage": {"fast": {"claims": 1}}}}),
    ):
        with pytest.raises(HelmError, match=rf"teams\.ops\.{place}: the Team definition that this"):
            release.upgrade(merge(FULL, {"teams": {"ops": team}}))


def make_storage(**sizes: str) -> dict[str, Any]:
    return merge(FULL, {"storage": {kind: {"size": size} for kind, size in sizes.items()}})


def test_volumes_of_a_release_grow_and_never_shrink(release: Release) -> None:
    release.upgrade(make_storage(home="10240Mi", share="1Ti", scratch="20.5Gi"))
    for kind, less, had in (
        ("home", "9Gi", "10240Mi"),
        ("share", "1023.9Gi", "1Ti"),
        ("scratch", "20Gi", "20.5Gi"),
    ):
        kept = {"home": "10Gi", "share": "1Ti", "scratch": "21Gi"}
        with pytest.raises(HelmError) as refusal:
            release.upgrade(make_storage(**{**kept, kind: less}))
        assert (
            f"storage.{kind}.size: {less} is less than the {had} that this release has, and "
            f"volumes grow but never shrink; set {had} or more"
        ) in str(refusal.value)
    release.upgrade(merge(FULL, {"storage": {"bucket": {"size": "1Gi"}}}, make_storage(**kept)))


def test_a_volume_of_a_team_grows_by_the_values_and_never_shrinks(release: Release) -> None:
    def make_team(size: str) -> dict[str, Any]:
        return merge(FULL, {"teams": {"ops": {"storage": {"share": {"size": size}}}}})

    release.upgrade(make_team("1Gi"))
    release.upgrade(make_team("2Gi"))
    with pytest.raises(HelmError, match=r"storage\.share\.size: 1Gi is less than 2Gi, and volumes"):
        release.upgrade(make_team("1Gi"))


def test_what_is_offered_for_the_first_time_may_be_smaller_than_was_said_before(
    release: Release,
) -> None:
    off = {"storage": {"share": {"enabled": False}, "scratch": {"enabled": False}}}
    release.upgrade(merge(FULL, off))
    release.upgrade(make_storage(share="2Gi", scratch="1Gi"))


@pytest.mark.parametrize("told", ["", "{}", '{"home": {}}', "by hand"])
def test_where_nothing_says_which_sizes_a_release_has_any_will_do(
    release: Release, told: str
) -> None:
    release.upgrade()
    container = {"name": "controller", "env": [{"name": "STORAGE", "value": told}]}
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    release.kubectl("patch", "deployment", "controller", "--patch", json.dumps(change))
    release.upgrade(make_storage(home="1Gi", share="1Gi", scratch="1Gi"), "--dry-run=server")


def test_a_gateway_stays_in_the_values_while_there_are_keys_to_it(release: Release) -> None:
    gateway = {"endpoint": "http://rgw.test", "enabled": False}
    release.upgrade(merge(FULL, {"storage": {"bucket": gateway}}))
    bucket = {"name": "spectrum-ops-1", "endpoint": "http://rgw.test", "ready": False}

    def set_status(**more: str) -> None:
        status = json.dumps({"status": {"storage": {"bucket": {**bucket, **more}}}})
        patch = ("patch", "team", "ops", "--type=merge", "--subresource=status", "--patch")
        release.kubectl(*patch, status)

    set_status(keysMade="2026-03-01T12:00:00Z")
    with pytest.raises(HelmError) as refusal:
        release.upgrade()
    assert (
        "storage.bucket.endpoint: bucket spectrum-ops-1 at http://rgw.test has keys, which would "
        "stay valid; keep the endpoint, set enabled: false here and in the teams, and take it out "
        "once no Team has status.storage.bucket.keysMade"
    ) in str(refusal.value)
    release.kubectl("delete", "team", "ops")
    release.upgrade(merge(FULL, {"storage": {"bucket": gateway}}))
    set_status()
    release.upgrade()


def test_the_notes_tell_when_the_secret_by_which_datasets_are_mounted_will_not_do(
    release: Release,
) -> None:
    digits = {"digits": {"path": "/volumes/datasets/digits", "size": "1Gi"}}
    secret = {"name": "node", "namespace": release.namespace}
    values = merge(FULL, {"storage": {"datasets": digits, "cephfs": {"nodeSecret": secret}}})
    sentence = (
        f"Datasets cannot be mounted until Secret node in namespace {release.namespace} has userID "
        "and userKey."
    )
    assert sentence in release.upgrade(values)
    keys = ("--from-literal=adminID=a", "--from-literal=adminKey=b")
    release.kubectl("create", "secret", "generic", "node", *keys)
    assert sentence in release.upgrade(values)
    right = json.dumps({"stringData": {"userID": "a", "userKey": "b"}})
    release.kubectl("patch", "secret", "node", "--patch", right)
    assert "Datasets cannot" not in release.upgrade(values)
    assert "Datasets cannot" not in release.upgrade()


def test_the_notes_name_what_storage_waits_for(release: Release) -> None:
    digits = {"path": "/volumes/datasets/digits", "size": "1Gi", "teams": ["ops", "later"]}
    bucket = {"enabled": True, "endpoint": "http://rgw.rook-ceph.svc", "secretName": "gateway"}
    values = merge(FULL, {"storage": {"datasets": {"digits": digits}, "bucket": bucket}})
    notes = release.upgrade(values)
    assert "Dataset digits is for team later, which is not in the values" in notes
    assert "team ops, which" not in notes
    assert "Buckets wait for the Secret gateway with AccessKey and SecretKey" in notes
    release.kubectl("create", "secret", "generic", "gateway", "--from-literal=AccessKey=a")
    assert "Buckets wait" not in release.upgrade(values)


def test_the_notes_name_the_storage_classes_that_there_are_not(release: Release) -> None:
    share = {"storage": {"share": {"storageClass": "fast"}}}
    storage = {"home": {"storageClass": ""}, "scratch": {"enabled": False}}
    values = merge(FULL, {"storage": storage, "teams": {"flight": share}})
    notes = release.upgrade(values).splitlines()
    told = [line for line in notes if "StorageClass" in line]
    assert told == [
        "There is no default StorageClass, and storage.home names none: no such volume is made "
        "until storage.home.storageClass names one.",
        *(
            f"There is no StorageClass {name}, which {place} asks for: no such volume is made "
            f"until it is there, or {place}.storageClass names another one."
            for place, name in (
                ("storage.share", "rook-cephfs"),
                ("teams.flight.storage.share", "fast"),
            )
        ),
    ]
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    for name, annotations in (("rook-cephfs", default), ("fast", {})):
        metadata = {"name": name, "annotations": annotations}
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
        made = {**kind, "metadata": metadata, "provisioner": "example.org/none"}
        release.kubectl("create", "-f", "-", text=json.dumps(made))
    assert "StorageClass" not in release.upgrade(values)
    release.kubectl("delete", "storageclass", "rook-cephfs", "fast")


def test_teams_outlive_an_uninstall_and_an_install_takes_them_up(release: Release) -> None:
    def read_uids() -> dict[str, str]:
        return {
            name: release.get("team", name)["metadata"]["uid"] for name in release.names("teams")
        }

    release.upgrade()
    team = {
        "apiVersion": "spectrum.dev/v1alpha1",
        "kind": "Team",
        "metadata": {"name": "asked-for"},
        "spec": {"groups": ["vision"]},
    }
    release.kubectl("create", "-f", "-", text=json.dumps(team))
    before = read_uids()
    release.uninstall()
    release.upgrade()
    assert read_uids() == before
    assert sorted(before) == ["asked-for", "flight", "ops"]


def test_audit_in_a_database_elsewhere_leaves_the_claim_of_before_alone(release: Release) -> None:
    release.upgrade()
    release.upgrade(merge(FULL, {"service": {"db": {"url": "postgresql://db.example.org/s"}}}))
    assert release.names("pvc") == ["hub-db", "service-db"]
    volumes = release.get("deployment", "service")["spec"]["template"]["spec"]["volumes"]
    assert [volume["name"] for volume in volumes] == ["values", "secrets", "tmp"]


def test_wrong_values_leave_nothing_behind(release: Release) -> None:
    with pytest.raises(HelmError, match="can sign in as anybody"):
        release.upgrade({})
    assert release.names("deployments") == []
    assert release.names("secrets") == []


def test_two_releases_live_side_by_side_and_one_namespace_takes_one(
    release: Release, helm: Helm, kubeconfig: Path
) -> None:
    release.upgrade()
    other = Release(helm, kubeconfig, f"{release.namespace}-b")
    other.upgrade()
    assert other.secrets()["adminPassword"] != release.secrets()["adminPassword"]
    other.uninstall()
    assert release.get("clusterrole", f"{release.namespace}-hub-in-team")


def test_the_notes_say_how_to_reach_it_and_how_to_read_both_passwords(release: Release) -> None:
    notes = release.upgrade(
        merge(FULL, {"proxy": {"service": {"type": "NodePort", "nodePort": 30088}}})
    )
    assert "http://<any node>:30088/" in notes
    commands = [line.strip() for line in notes.splitlines() if "get secret" in line]
    secrets = release.secrets()
    assert [read_password(release, command) for command in commands] == [
        secrets["userPassword"],
        secrets["adminPassword"],
    ]


def test_with_an_identity_provider_the_notes_name_its_client_and_no_password(
    release: Release,
) -> None:
    notes = release.upgrade(OAUTH)
    assert "https://gpu.flight.test/hub/oauth_callback" in notes
    assert "get secret" not in notes


def read_password(release: Release, command: str) -> str:
    """What the command of the notes prints, typed into a shell."""
    kubectl = f'{ensure_kube()} kubectl --kubeconfig "{release.kubeconfig}"'
    typed = re.sub(r"^kubectl", lambda _: kubectl, command)
    result = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=True)
    return result.stdout.strip()
