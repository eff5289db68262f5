"""What accounts may do, as the API server says."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from local.kubectl import Kubectl

API_GROUPS = {"teams": "spectrum.dev"}  # the others are in the core group
BATCH = 200


@dataclass(frozen=True)
class Right:
    """`account` is `<namespace>:<service account>`; `resource` may be a subresource, pods/log."""

    account: str
    verb: str
    resource: str
    namespace: str


def find_allowed(kubectl: Kubectl, asked: Iterable[Right]) -> set[Right]:
    """Those of the rights that the accounts have."""
    rights = list(asked)
    allowed: set[Right] = set()
    for start in range(0, len(rights), BATCH):
        batch = rights[start : start + BATCH]
        answers = zip(batch, _ask(kubectl, batch), strict=True)
        allowed.update(right for right, is_allowed in answers if is_allowed)
    return allowed


def _ask(kubectl: Kubectl, rights: list[Right]) -> Iterator[bool]:
    reviews = {"apiVersion": "v1", "kind": "List", "items": [_make_review(r) for r in rights]}
    options = ("-o", 'jsonpath={.status.allowed}{"\\n"}')
    answers = kubectl("create", "-f", "-", *options, text=json.dumps(reviews)).split()
    assert len(answers) == len(rights)
    return (answer == "true" for answer in answers)


def _make_review(right: Right) -> dict[str, Any]:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "namespace": right.namespace,
        "verb": right.verb,
        "resource": resource,
        "subresource": subresource,
        "group": API_GROUPS.get(resource, ""),
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{right.account}",
            # What every account of a namespace is a member of.
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{right.account.partition(':')[0]}",
                "system:authenticated",
            ],
            "resourceAttributes": attributes,
        },
    }
