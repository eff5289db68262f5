"""What an identity provider's answer says of a person: groups, name and subject.

Rules, all of them:

- A group is its name without slashes at either end; nothing else is changed, nothing folded.
- A text is one group, an empty list is no group. Absent, null, or anything else is doubt, which
  is not the same as no group.
- A user's name is what the provider says, in lower case. A name that somebody could take for
  another one, or that does not survive in an address, is refused with the reason.
- A subject is `<host of the provider>|<the id that the provider never gives to anybody else>`.
"""

import unicodedata
from collections.abc import Mapping
from typing import Any

from spectrum_spawner import names

LONGEST_NAME = 255  # characters of a user's name that the hub's database keeps
LONGEST_ID = 255  # characters of a provider's id of a person, as OpenID Connect has it


class Doubt(Exception):  # noqa: N818 - reads as the state that it is
    """The answer does not say it; the text says what is amiss."""


def find_claim(answer: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path such as `realm_access.roles`; raises Doubt if there is none.

    A claim whose own name has dots (`https://example.org/groups`) is found by that name.
    """
    found: Any = answer
    for key in [path] if path in answer else path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    if found is None:
        raise Doubt(f"there is no claim {path}")
    return found


def read_groups(value: Any) -> frozenset[str]:
    """The groups that a claim names; raises Doubt if it is neither a text nor a list of texts."""
    groups = [value] if isinstance(value, str) else value
    if not isinstance(groups, list) or not all(map(_is_text, groups)):
        raise Doubt("the claim of groups is no list of names")
    return frozenset(filter(None, map(names.plain_group, groups)))


def read_github_teams(value: Any) -> frozenset[str]:
    """Groups such as `acme/flight` from GitHub's list of teams, each in its organization."""
    try:
        return frozenset(f"{team['organization']['login']}/{team['slug']}" for team in value)
    except (KeyError, TypeError) as error:
        raise Doubt("GitHub did not list the teams") from error


def read_subject(value: Any, *, issuer: str) -> str:
    """The subject for a provider's id of a person, a text or a number; else raises Doubt."""
    if isinstance(value, bool) or not (isinstance(value, int) or _is_text(value)) or value == "":
        raise Doubt("the id of the person is neither a text nor a number")
    if len(str(value)) > LONGEST_ID:
        raise Doubt(f"the id of the person has more than {LONGEST_ID} characters")
    return f"{issuer}|{value}"


def why_no_name(name: str) -> str:
    """What is wrong with a user's name in lower case, in words; "" if nothing is."""
    if len(name) > LONGEST_NAME:
        return f"it has more than {LONGEST_NAME} characters"
    if unicodedata.normalize("NFKC", name) != name:
        return "it has characters that look like others"
    if any(c.isspace() or unicodedata.category(c).startswith("C") for c in name):
        return "it has blanks or control characters"
    if "/" in name or "\\" in name or not name.strip("."):
        return "it has slashes, or nothing but dots"
    return ""


def _is_text(value: Any) -> bool:
    """Whether it is a text that can be kept: JSON may hold halves of characters."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)
