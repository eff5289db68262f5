"""Which profile a server goes on with when it gives back its GPU."""

from dataclasses import replace

from spectrum_spawner.profiles import Image, Profile
from spectrum_spawner.service.continuing import find_profile
from spectrum_spawner.teams import Team

TEAM = Team(name="ops", uid="1", display_name="Operations", groups=frozenset({"ops"}))
TENSORFLOW, LAB = (Image(name=n, title=n, image=n) for n in ("tensorflow", "lab"))
PROFILES = {
    profile.name: profile
    for profile in (
        Profile(name="gpu", title="GPU", gpu=1, images=(TENSORFLOW,), default=True),
        Profile(name="tiny", title="Tiny", images=(LAB,)),
        Profile(name="small", title="Small", images=(LAB, TENSORFLOW)),
        Profile(name="large", title="Large", images=(TENSORFLOW,)),
        Profile(name="others", title="Others", images=(TENSORFLOW,), teams=frozenset({"flight"})),
    )
}


def find(team: Team = TEAM, *, image: str = "tensorflow", wanted: str = "") -> str:
    found = find_profile(team, PROFILES, image=image, wanted=wanted)
    return found.name if found else ""


def test_the_image_stays_where_a_profile_has_it() -> None:
    assert find() == "small"
    assert find(image="lab") == "tiny"
    assert find(image="gone") == "tiny"


def test_the_teams_default_comes_first() -> None:
    assert find(replace(TEAM, default_profile="large")) == "large"
    assert find(replace(TEAM, default_profile="gpu")) == "small"


def test_what_is_named_is_taken_if_the_team_may_use_it_and_it_has_no_gpu() -> None:
    assert find(wanted="large") == "large"
    assert [find(wanted=name) for name in ("gpu", "others", "nope")] == ["", "", ""]


def test_a_team_that_may_use_gpus_alone_has_none() -> None:
    assert find(replace(TEAM, profiles=frozenset({"gpu"}))) == ""
