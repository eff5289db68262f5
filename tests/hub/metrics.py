"""What kube-apiserver says about itself: requests that it has answered, by kind."""

import re
from collections import Counter

from tests.hub.cluster import Cluster

_REQUESTS = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITING = {"POST", "PUT", "PATCH", "APPLY", "DELETE"}


async def read_requests(cluster: Cluster) -> Counter[str]:
    """Answered requests by `VERB resource`, or `VERB resource/subresource`."""
    found: Counter[str] = Counter()
    for line in (await cluster.read("/metrics")).splitlines():
        if match := _REQUESTS.match(line):
            labels = dict(_LABEL.findall(match["labels"]))
            below = f"/{labels['subresource']}" if labels["subresource"] else ""
            found[f"{labels['verb']} {labels['resource']}{below}"] += int(float(match["count"]))
    return found


async def read_writes(cluster: Cluster) -> Counter[str]:
    """Answered requests that write, whether they were granted or not."""
    requests = await read_requests(cluster)
    return Counter({key: n for key, n in requests.items() if key.split()[0] in _WRITING})
