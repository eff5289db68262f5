"""Labels, annotations and object names: the one home of strings that several parts must agree on.

Names of people, servers and teams are free text; names in Kubernetes are not. `slug` maps one
onto the other without two inputs meeting: what is not already a plain DNS label, or is too
long, gets a suffix of 80 bits of its SHA-256 (KubeSpawner's own suffix has 32, within reach of
somebody who may choose names). Because even long hashes are no proof of identity, every object
also carries the full names as annotations, and whoever finds an object compares them.
"""

import base64
import hashlib
import re
from urllib.parse import quote

API_GROUP = "spectrum.dev"
API_VERSION = "v1alpha1"
TEAM_KIND = "Team"
TEAM_PLURAL = "teams"

LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_NAME = "app.kubernetes.io/name"
LABEL_COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "spectrum"
COMPONENT_SERVER = "singleuser-server"
COMPONENT_HOME = "home"
COMPONENT_SHARE = "share"  # what the members of a team have in common
COMPONENT_SCRATCH = "scratch"  # a disk of one person, for one server at a time
COMPONENT_DATASET = "dataset"  # somebody else's data, read only

LABEL_HUB = f"{API_GROUP}/hub"  # namespace of the hub that owns the object
LABEL_TEAM = f"{API_GROUP}/team"  # slug of the team's name
LABEL_USER = f"{API_GROUP}/user"  # slug of the user's name
LABEL_SERVER = f"{API_GROUP}/server"  # slug of the server's name, "" for the default server
LABEL_SUBJECT = f"{API_GROUP}/subject"  # slug of the subject
LABEL_PROFILE = f"{API_GROUP}/profile"

ANNOTATION_HUB = f"{API_GROUP}/owner-hub"  # namespace of the hub
ANNOTATION_TEAM = f"{API_GROUP}/owner-team"  # the team's name in full
ANNOTATION_TEAM_UID = f"{API_GROUP}/owner-team-uid"  # uid of the Team object
ANNOTATION_USER = f"{API_GROUP}/owner-user"  # the user's name in full
ANNOTATION_SERVER = f"{API_GROUP}/owner-server"  # the server's name in full
ANNOTATION_SUBJECT = f"{API_GROUP}/owner-subject"  # who the user is to the identity provider
ANNOTATION_PROFILE = f"{API_GROUP}/profile"
ANNOTATION_START_ID = (
    f"{API_GROUP}/start-id"  # one start of one server: a pod that carries it is ours
)
ANNOTATION_ORPHANED_AT = f"{API_GROUP}/orphaned-at"  # set when the Team is gone; the data stays
ANNOTATION_PURGE = f"{API_GROUP}/purge"  # must equal the object's own name to delete its data
ANNOTATION_VOLUME = f"{API_GROUP}/volume"  # name of a scratch disk or a dataset in full
ANNOTATION_PREPARED = f"{API_GROUP}/prepared"  # "true": the share has its directory `team`
ANNOTATION_ROTATE_KEYS = f"{API_GROUP}/rotate-keys"  # on a Team: each new text asks for new keys

QUOTA = "spectrum"
LIMIT_RANGE = "spectrum"
POLICY_DENY = "spectrum-default-deny"
POLICY_ALLOW = "spectrum-allow"
SERVER_SERVICE_ACCOUNT = "spectrum-server"
HUB_ROLE_BINDING = "spectrum-hub"
HUB_SERVICE_ACCOUNT = "hub"
SERVICE_ROLE_BINDING = "spectrum-service"
SERVICE_SERVICE_ACCOUNT = "service"
SHARE_CLAIM = "share"
SHARE_CONTAINER = "share"  # init container that makes the share's directory `team`
BUCKET_SECRET = "spectrum-bucket"
INVENTORY = "gpu-inventory"
INVENTORY_KEY = "inventory.json"

GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"  # set by GPU feature discovery

MAX_LABEL = 63
_PLAIN = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_SUFFIX_LENGTH = 16  # base32 characters of 5 bits: 80 bits


def slug(name: str, *, max_length: int = MAX_LABEL) -> str:
    """A DNS-1123 label of at most `max_length` characters that stands for `name` alone.

    A name that is a plain label already is itself, unless it holds `--`, which marks a suffix.
    """
    if len(name) <= max_length and _PLAIN.match(name) and "--" not in name:
        return name
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not readable or not readable[0].isalpha():
        readable = f"x-{readable}".rstrip("-")
    kept = readable[: max_length - _SUFFIX_LENGTH - 2].rstrip("-")
    return f"{kept}--{_suffix(name)}"


def _suffix(name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest).decode().lower()[:_SUFFIX_LENGTH]


def cluster_prefix(hub_namespace: str) -> str:
    """Prefix of cluster-scoped names, so that two releases on one cluster never meet."""
    return f"{hub_namespace}-"


def hub_role_in_team(hub_namespace: str) -> str:
    """ClusterRole that the controller binds to the hub in each team namespace."""
    return f"{cluster_prefix(hub_namespace)}hub-in-team"


def service_role_in_team(hub_namespace: str) -> str:
    """ClusterRole that the controller binds to the Spectrum service in each team namespace."""
    return f"{cluster_prefix(hub_namespace)}service-in-team"


def team_namespace(team: str, *, prefix: str) -> str:
    """The namespace of a team: `prefix` and a slug, 63 characters at most."""
    return prefix + slug(team, max_length=MAX_LABEL - len(prefix))


def server_name(user: str, server: str) -> str:
    """Pod name of a user's server in whichever team namespace it runs ("" is the default server).

    A user name holds no `/`, so one slug over both parts keeps every pair apart.
    """
    whole = f"{user}/{server}" if server else user
    return "jupyter-" + slug(whole, max_length=MAX_LABEL - len("jupyter-"))


def home_claim(user: str) -> str:
    """Claim that holds a person's home in one team namespace."""
    return "home-" + slug(user, max_length=MAX_LABEL - len("home-"))


def scratch_claim(user: str, volume: str) -> str:
    """Claim that holds one of a person's scratch disks; one slug over both keeps pairs apart."""
    return "scratch-" + slug(f"{user}/{volume}", max_length=MAX_LABEL - len("scratch-"))


def dataset_claim(dataset: str) -> str:
    """Claim by which a team namespace mounts a dataset."""
    return "dataset-" + slug(dataset, max_length=MAX_LABEL - len("dataset-"))


def dataset_volume(namespace: str, dataset: str) -> str:
    """PersistentVolume behind that claim: volumes have no namespace of their own."""
    return f"{namespace}-{dataset_claim(dataset)}"


def bucket(team: str, namespace_uid: str) -> str:
    """User and bucket of a team in the object store, where clusters and releases may meet.

    The uid of the team's namespace keeps them apart; a bucket's name has 63 characters at most.
    """
    readable = slug(team, max_length=MAX_LABEL - len("spectrum-") - 1 - _SUFFIX_LENGTH)
    return f"spectrum-{readable}-{_suffix(namespace_uid)}"


def plain_group(name: str) -> str:
    """A group's name as all parts of Spectrum write it: `/a/b` and `a/b` are the group `a/b`.

    A path is a group of its own: who is in `a/b` is not thereby in `a`.
    """
    return name.strip("/")


def gpu_quota_key(resource: str) -> str:
    """ResourceQuota key of an accelerator: extended resources know only `requests.`."""
    return f"requests.{resource}"


def storage_quota_key(storage_class: str, resource: str) -> str:
    """ResourceQuota key of what the claims of one class may be: their bytes or their number."""
    return f"{storage_class}.storageclass.storage.k8s.io/{resource}"


def oauth_client(user: str, server: str) -> str:
    """The id of a server as an OAuth client of the hub.

    JupyterHub (6.1.1) joins the two names with a hyphen, so that server `eval` of `team:ops` and
    the default one of `team:ops-eval` were one client.
    """
    own = f"jupyterhub-user-{quote(user)}"
    return f"{own}%2F{quote(server, safe='')}" if server else own
