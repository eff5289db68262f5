"""Why a volume is not there, in words: of Kubernetes and of storage drivers, and ours. Pure."""

import re

LONGEST_REASON = 200  # characters of a driver's own words

_NO_CLASS = re.compile(r'storageclass\.storage\.k8s\.io "(?P<name>[^"]+)" not found')
_NO_DEFAULT = re.compile(r"no storage class is set")
_NO_DRIVER = re.compile(r"driver name (?P<name>\S+) not found in the list of registered CSI")
_NO_SECRET = re.compile(r'secrets? "(?P<name>[^"]+)" not found')
_NO_KEY = re.compile(r"missing (?:ID|key) field '(?P<key>\w+)' in secrets")
_ATTACHED = re.compile(r"Multi-Attach error(?:.*used by pod\(s\) (?P<pods>.+))?", re.DOTALL)
# the kubelet's sum of what it waits for, by the pod's names of the volumes
UNMOUNTED = re.compile(r"unmounted volumes=\[(?P<volumes>[^\]]*)\]")
_LOST = re.compile(r"Transport endpoint is not connected|Stale file handle", re.IGNORECASE)
_SILENT = re.compile(
    r"DeadlineExceeded|deadline exceeded|timed? ?out|Unavailable|connection refused|"
    r"no route to host|error connecting to the cluster|ret=-110|rados: ",
    re.IGNORECASE,
)
_RPC = re.compile(r"rpc error: code = \w+ desc = ")


def is_about_class(message: str) -> bool:
    """Whether a claim waits for a storage class that does not exist."""
    return _NO_CLASS.search(message) is not None


def say_reason(message: str, *, is_ceph: bool) -> str:
    """In words why a volume is not there, from what Kubernetes or a driver says of it."""
    storage = "Ceph" if is_ceph else "the storage"
    if found := _NO_CLASS.search(message):
        return f"storage class “{found['name']}” does not exist"
    if _NO_DEFAULT.search(message):
        return "no storage class is set, and the cluster has no default one"
    if found := _NO_DRIVER.search(message):
        return f"its driver {found['name']} does not run on the node"
    if found := _NO_SECRET.search(message):
        return f"Secret {found['name']} of its storage class does not exist"
    if found := _NO_KEY.search(message):
        return f"the Secret by which nodes mount it has no key {found['key']}"
    if found := _ATTACHED.search(message):
        return "it is still attached to another node" + (
            f", for pod {found['pods']}" if found["pods"] else ""
        )
    if UNMOUNTED.search(message):
        return "the node has not mounted it yet"
    if _LOST.search(message):
        return f"the node has lost its connection to {storage}"
    if _SILENT.search(message):
        return f"{storage} does not answer"
    words = _RPC.split(message)[-1].strip()
    return words[:LONGEST_REASON] or "nobody says why"
