"""Which profiles are open to which team, and which of them comes first."""

from spectrum_spawner.profiles import Profile, allowed_profiles, default_profile
from spectrum_spawner.teams import Team

SMALL = Profile(name="cpu-small", title="Small")
GPU = Profile(name="gpu-1", title="One GPU", gpu=1)
OPS_ONLY = Profile(name="ops-only", title="For ops", teams=frozenset({"ops"}))
KNOWN = {profile.name: profile for profile in (SMALL, GPU, OPS_ONLY)}


def make_team(name: str, *profiles: str) -> Team:
    return Team(
        name=name,
        uid=name,
        display_name=name,
        groups=frozenset({name}),
        profiles=frozenset(profiles),
    )


def test_a_team_may_use_what_both_lists_admit() -> None:
    assert allowed_profiles(make_team("flight"), KNOWN) == [SMALL, GPU]
    assert allowed_profiles(make_team("ops"), KNOWN) == [SMALL, GPU, OPS_ONLY]
    assert allowed_profiles(make_team("picky", "gpu-1", "ops-only"), KNOWN) == [GPU]


def test_the_profile_marked_as_default_comes_first_else_the_first_one() -> None:
    marked = Profile(name="big", title="Big", default=True)
    assert default_profile([SMALL, marked]) == marked
    assert default_profile([SMALL, GPU]) == SMALL
    assert default_profile([]) is None
