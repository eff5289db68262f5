"""Whose an object is: the full names, as annotations, compared before the object is touched."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import names


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Owner of a server or, with `server` None, of a claim that is any server's of a person.

    All are full names, never slugs: two owners whose objects have the same name still differ.
    `subject` is who the user is to the identity provider, "" where nobody says: it stays with a
    person whose name changes, and tells apart two who had one name after the other.
    """

    hub: str
    team: str
    user: str
    server: str | None = None
    subject: str = ""

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> "Owner":
        """The owner that an object names; of an object without our annotations, nobody."""
        found = obj["metadata"].get("annotations") or {}
        return cls(
            hub=found.get(names.ANNOTATION_HUB, ""),
            team=found.get(names.ANNOTATION_TEAM, ""),
            user=found.get(names.ANNOTATION_USER, ""),
            server=found.get(names.ANNOTATION_SERVER),
            subject=found.get(names.ANNOTATION_SUBJECT, ""),
        )

    def has_claim(self, claim: "Owner") -> bool:
        """Whether a claim, by what it says of itself, is this person's: a home or scratch disk.

        With a subject that alone says who the person is; without one the name has to do.
        """
        if (self.hub, self.team) != (claim.hub, claim.team) or claim.server is not None:
            return False
        return claim.subject == self.subject if self.subject else claim.user == self.user

    @property
    def annotations(self) -> dict[str, str]:
        server = {} if self.server is None else {names.ANNOTATION_SERVER: self.server}
        return {
            names.ANNOTATION_HUB: self.hub,
            names.ANNOTATION_TEAM: self.team,
            names.ANNOTATION_USER: self.user,
            **server,
            **({names.ANNOTATION_SUBJECT: self.subject} if self.subject else {}),
        }

    @property
    def labels(self) -> dict[str, str]:
        """For selectors only; a label proves nothing."""
        server = {} if self.server is None else {names.LABEL_SERVER: _slug_or_empty(self.server)}
        return {
            names.LABEL_NAME: "spectrum",
            names.LABEL_MANAGED_BY: names.MANAGED_BY,
            names.LABEL_HUB: self.hub,
            names.LABEL_TEAM: names.slug(self.team),
            names.LABEL_USER: names.slug(self.user),
            **server,
            **({names.LABEL_SUBJECT: names.slug(self.subject)} if self.subject else {}),
        }


def _slug_or_empty(name: str) -> str:
    return names.slug(name) if name else ""
