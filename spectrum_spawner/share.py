"""The team's directory in a share: the first server of a team makes it, once. Pure.

Storage drivers give the root of a volume to everybody. What the members of a team share is
therefore a directory below it, for the team's group alone, in which new files are the group's.
"""

from collections.abc import Mapping
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.mounts import TEAM_DIRECTORY

_ROOT = "/share"
# Servers that start at once all find it done, whoever made it.
_SCRIPT = """\
set -e
cd {root}
mkdir -p {directory}
is_made() {{ [ "$(stat -c %a:%g {directory})" = 2770:{gid} ]; }}
is_made || {{ chgrp {gid} {directory}; chmod 2770 {directory}; is_made; }}
"""


def make_share_container(server: Mapping[str, Any], *, gid: int) -> dict[str, Any]:
    """The init container that makes the directory, for the team's group `gid`.

    It has image, confinement and resources of the `server`'s own container, accelerators
    excepted, so that the pod asks for no more than without it.
    """
    resources = {
        kind: {key: amount for key, amount in amounts.items() if "/" not in key}
        for kind, amounts in server["resources"].items()
    }
    return {
        "name": names.SHARE_CONTAINER,
        "image": server["image"],
        "imagePullPolicy": server["imagePullPolicy"],
        "command": [
            "/bin/sh",
            "-c",
            _SCRIPT.format(root=_ROOT, directory=TEAM_DIRECTORY, gid=gid),
        ],
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "resources": resources,
        "securityContext": server["securityContext"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "share", "mountPath": _ROOT}],
    }
