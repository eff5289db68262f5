"""Which profiles are open to which team, and which of them comes first."""

from spectrum_spawner.profiles import Profile, allowed_profiles, default_profile
from spectrum_spawner.teams import Team

SMALL = Profile(name="cpu-small", title="Small")
GPU = Profile(name="gpu-1", title="One GPU", gpu=1)
OPS_ONLY = Profile(name="ops-only", title="For ops", teams=frozenset({"ops"}))
KNOWN = {profile.name: profile for profile in (SMALL, GPU, OPS_ONLY)}


def make_team(name: str, *profiles: str, granted: tuple[str, ...] = ()) -> Team:
    return Team(
        name=name,
        uid=name,
        display_name=name,
        groups=frozenset({name}),
        profiles=frozenset(profiles),
        granted_profiles=frozenset(granted),
    )


def test_a_team_may_use_what_both_lists_admit() -> None:
    assert allowed_profiles(make_team("flight"), KNOWN) == [SMALL, GPU]
    assert allowed_profiles(make_team("ops"), KNOWN) == [SMALL, GPU, OPS_ONLY]
    assert allowed_profiles(make_team("picky", "gpu-1", "ops-only"), KNOWN) == [GPU]


def test_a_grant_opens_a_profile_that_either_list_keeps_closed() -> None:
    flight = make_team("flight", granted=("ops-only",))
    assert allowed_profiles(flight, KNOWN) == [SMALL, GPU, OPS_ONLY]
    picky = make_team("picky", "gpu-1", granted=("cpu-small", "no such profile"))
    assert allowed_profiles(picky, KNOWN) == [SMALL, GPU]


def test_the_profile_marked_as_default_comes_first_else_the_first_one() -> None:
    marked = Profile(name="big", title="Big", default=True)
    assert default_profile([SMALL, marked]) == marked
    assert default_profile([SMALL, GPU]) == SMALL
    assert default_profile([]) is None


def test_a_teams_own_default_comes_before_the_marked_one_while_the_team_may_use_it() -> None:
    marked = Profile(name="big", title="Big", default=True)
    assert default_profile([SMALL, marked, GPU], "gpu-1") == GPU
    assert default_profile([SMALL, marked], "gpu-1") == marked
    assert default_profile([], "gpu-1") is None
