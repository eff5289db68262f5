"""The spawn form: which team, which profile, which image; and what came back from it.

Everything shown comes from records; whether a start is allowed is decided again at the start
(`profiles.choose`), so the form only has to be helpful. Names of teams, profiles and GPUs are
free text of other people: the environment escapes them all, and nothing is formatted twice.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from spectrum_spawner import names
from spectrum_spawner.choice import LONGEST_DISK, OptionError, is_disk_name
from spectrum_spawner.inventory import Inventory
from spectrum_spawner.profiles import (
    TENSORBOARD,
    Image,
    Profile,
    allowed_profiles,
    default_profile,
    is_allowed,
)
from spectrum_spawner.teams import Team

FIELDS = ("team", "profile", "image", "scratch")
FILTER_ABOVE = 12  # profiles: more than this is too many to look through

_GIB, _MIB = 2**30, 2**20


class Stock(NamedTuple):
    """GPUs of one kind on the cluster; the counts are None while nobody has counted."""

    model: str
    total: int | None
    free: int | None


class Card(NamedTuple):
    """One profile as shown: texts only, so that equal cards are rendered once.

    `teams` holds the places of the teams that may use it, `images` pairs of name and label.
    """

    place: int
    name: str
    title: str
    description: str
    gpu: str
    gpus: int
    resource: str
    cpu: str
    memory: str
    availability: str
    scarce: bool
    images: tuple[tuple[str, str], ...]
    image: str
    teams: str
    hidden: bool
    checked: bool


def form_context(
    *,
    teams: Sequence[Team],
    profiles: Mapping[str, Profile],
    inventory: Inventory,
    saved: Mapping[str, Any],
    server: str,
    contact: str,
    requests_url: str,
) -> dict[str, Any]:
    """What the template shows to somebody in `teams` who is about to start their `server`.

    `saved` are the options of the last start; they preselect what is still allowed and are
    never trusted further. `requests_url` is where quota, profiles and teams are asked for.
    """
    team, profile, message = _preselect(teams, profiles, saved)
    stock = cache(partial(_stock, inventory))
    places = {name: _places(teams, known) for name, known in profiles.items()}
    return {
        "teams": [
            _team_row(index, each, profiles, checked=each is team)
            for index, each in enumerate(teams)
        ],
        "cards": [
            _card(
                place,
                known,
                teams=places[known.name],
                stock=stock(known.gpu_resource, known.gpu_product),
                image=_text(saved, "image") if known is profile else "",
                hidden=team is not None and not is_allowed(team, known),
                checked=known is profile,
            )
            for place, known in enumerate(profiles.values())
            if places[known.name]
        ],
        "scratch": _scratch(team, saved, server=server),
        "message": message,
        "contact": contact,
        "requests_url": requests_url,
        "filter_above": FILTER_ABOVE,
    }


def render(context: Mapping[str, Any]) -> str:
    """HTML for JupyterHub's `options_form`, start button included."""
    cards = Markup("\n".join(map(_render_card, context["cards"])))
    return _template("form.html").render(context, cards=cards)


def options_from_form(formdata: Mapping[str, list[Any]]) -> dict[str, str]:
    """The options in a submitted form (each field a list of values); OptionError if malformed."""
    if set(formdata) - set(FIELDS):
        raise OptionError(
            "The form may hold a team, a profile, an image and a scratch disk, and nothing else."
        )
    for field, values in formdata.items():
        if len(values) != 1:
            raise OptionError(f"Choose one {field}, not {len(values)}.")
    return {field: values[0] for field, values in formdata.items()}


def server_facts(
    options: Mapping[str, Any], *, teams: Iterable[Team], profiles: Mapping[str, Profile]
) -> dict[str, Any]:
    """What a server is, for the home page: texts `team`, `profile`, `image`, `gpu`; int `gpus`;
    `opens` is what one finds there.

    A team or profile that is no longer known is shown by its name.
    """
    team, name = _text(options, "team"), _text(options, "profile")
    profile = profiles.get(name)
    titles = {image.name: image.title for image in profile.images} if profile else {}
    image = _text(options, "image")
    return {
        "team": next((t.display_name for t in teams if t.name == team), team),
        "profile": profile.title if profile else name,
        "image": titles.get(image, image),
        "gpu": _gpu_text(profile.gpu, _model(profile.gpu_resource, profile.gpu_product))
        if profile
        else "",
        "gpus": profile.gpu if profile else 0,
        "opens": "TensorBoard" if profile and profile.kind == TENSORBOARD else "JupyterLab",
    }


def _preselect(
    teams: Sequence[Team], profiles: Mapping[str, Profile], saved: Mapping[str, Any]
) -> tuple[Team | None, Profile | None, str]:
    """Team and profile to begin with, and a sentence if that is not what was used last."""
    if not teams:
        return None, None, ""
    last_team, last_profile = _text(saved, "team"), _text(saved, "profile")
    team = next((t for t in teams if t.name == last_team), None)
    message = ""
    if last_team and team is None:
        message = f"You are no longer in team “{last_team}”, where your last server ran."
    team = team or teams[0]
    allowed = {profile.name: profile for profile in allowed_profiles(team, profiles)}
    profile = allowed.get(last_profile) or _default_profile(team, profiles)
    if last_profile and last_profile not in allowed and not message:
        message = (
            f"Profile “{last_profile}”, which you used last, is not offered to team "
            f"“{team.display_name}” any more. Please check the choice below."
        )
    return team, profile, message


def _places(teams: Sequence[Team], profile: Profile) -> str:
    return " ".join(str(i) for i, team in enumerate(teams) if is_allowed(team, profile))


def _team_row(
    index: int, team: Team, profiles: Mapping[str, Profile], *, checked: bool
) -> dict[str, Any]:
    default = _default_profile(team, profiles)
    return {
        "index": index,
        "name": team.name,
        "title": team.display_name,
        "quota": _quota_text(team),
        "quotas": _quotas(team),
        "notice": _notice(team),
        "default": default.name if default else "",
        "scratch": team.scratch.size if team.scratch else "",
        "checked": checked,
    }


def _notice(team: Team) -> str:
    if not team.ready:
        return team.message or "This team is still being prepared."
    missing = " and ".join(each.title for each in team.withheld)
    if not missing:
        return ""
    verb, pronoun = ("is", "it") if len(team.withheld) == 1 else ("are", "them")
    return f"{missing[0].upper()}{missing[1:]} {verb} not ready: servers start without {pronoun}."


def _scratch(team: Team | None, saved: Mapping[str, Any], *, server: str) -> dict[str, Any]:
    """The field of the scratch disk: shown if the team is offered one, else only hidden.

    It is called like the server, as long as its owner does not call it otherwise.
    """
    last = _text(saved, "scratch")
    own = server or "default"
    return {
        "name": last or (own if is_disk_name(own) else names.slug(own)),
        "checked": bool(last),
        "hidden": team is None or team.scratch is None,
        "longest": LONGEST_DISK,
    }


def _default_profile(team: Team, profiles: Mapping[str, Profile]) -> Profile | None:
    return default_profile(allowed_profiles(team, profiles), preferred=team.default_profile)


def _quotas(team: Team) -> dict[str, dict[str, int]]:
    """GPUs of the team's quota and how many it still admits, by resource name, where known."""
    used, hard = team.gpus_used or {}, team.gpus_hard or {}
    return {
        key: {"hard": hard[key], "left": max(0, hard[key] - used[key])}
        for key in hard
        if key in used
    }


def _quota_text(team: Team) -> str:
    used = team.gpus_used or {}
    limits = {key: hard for key, hard in (team.gpus_hard or {}).items() if hard and key in used}
    parts = [
        f"{used[key]} of {_counted(hard, 'GPU')} in use"
        + (f" ({key.partition('/')[2]})" if len(limits) > 1 else "")
        for key, hard in sorted(limits.items())
    ]
    return ", ".join(parts)


def _stock(inventory: Inventory, resource: str, product: str) -> Stock:
    """One kind of GPU; a profile that takes any model shows the model if there is only one."""
    products = {gpus.product for gpus in inventory.gpus if gpus.resource == resource}
    only = products.pop() if len(products) == 1 else ""
    return Stock(
        model=_model(resource, product or only),
        total=inventory.total(resource, product),
        free=inventory.free(resource, product),
    )


def _model(resource: str, product: str) -> str:
    """A model's name; node labels hold dashes where the vendor writes spaces."""
    if product:
        return product.replace("-", " ")
    kind = resource.partition("/")[2]
    return "any model" if kind == "gpu" else kind


def _card(
    place: int,
    profile: Profile,
    *,
    teams: str,
    stock: Stock,
    image: str,
    hidden: bool,
    checked: bool,
) -> Card:
    availability, scarce = _availability(profile.gpu, stock)
    return Card(
        place=place,
        name=profile.name,
        title=profile.title,
        description=profile.description,
        gpu=_gpu_text(profile.gpu, stock.model),
        gpus=profile.gpu,
        resource=profile.gpu_resource,
        cpu=_cpu_text(profile.cpu_guarantee, profile.cpu_limit),
        memory=_memory_text(profile.memory_guarantee, profile.memory_limit),
        availability=availability,
        scarce=scarce,
        images=_image_labels(profile.images),
        image=image,
        teams=teams,
        hidden=hidden,
        checked=checked,
    )


def _availability(gpus: int, stock: Stock) -> tuple[str, bool]:
    """How many GPUs are free now, and whether that is too few for `gpus`."""
    if not gpus:
        return "", False
    if stock.total is None or stock.free is None:
        return "Free GPUs: not known yet", False
    if stock.total == 0:
        return "The cluster has no such GPU now", True
    if stock.total < gpus:
        return f"Needs {_counted(gpus, 'GPU')}, the cluster has only {stock.total}", True
    now = f"{stock.free} of {_counted(stock.total, 'GPU')} free now"
    if stock.free >= gpus:
        return now, False
    return f"{now}: your server will wait for {'one' if gpus == 1 else gpus}", True


def _gpu_text(gpus: int, model: str) -> str:
    return f"{_counted(gpus, 'GPU')} · {model}" if gpus else "No GPU"


@lru_cache(maxsize=1024)
def _image_labels(images: tuple[Image, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (image.name, f"{image.title} (Python {image.python})" if image.python else image.title)
        for image in images
    )


@lru_cache(maxsize=1024)
def _cpu_text(guarantee: float | None, limit: float | None) -> str:
    most = limit if limit is not None else guarantee
    return _range_text(_number(guarantee), _number(limit), "CPU" if most == 1 else "CPUs")


@lru_cache(maxsize=1024)
def _memory_text(guarantee: int | None, limit: int | None) -> str:
    low, high = _size(guarantee), _size(limit)
    if low[-3:] == high[-3:]:  # the unit is said once
        low = low.partition(" ")[0]
    return _range_text(low, high, "memory")


def _range_text(low: str, high: str, noun: str) -> str:
    if not low and not high:
        return f"{noun}: no limit"
    if not low:
        return f"up to {high} {noun}"
    if not high:
        return f"{low} {noun} or more"
    return f"{high} {noun}" if high.startswith(f"{low} ") or low == high else f"{low}–{high} {noun}"


def _number(cores: float | None) -> str:
    return "" if cores is None else f"{cores:g}"


def _size(size: int | None) -> str:
    if size is None:
        return ""
    return f"{size / _GIB:.3g} GiB" if size >= _GIB else f"{size / _MIB:.3g} MiB"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _text(options: Mapping[str, Any], key: str) -> str:
    value = options.get(key)
    return value if isinstance(value, str) else ""


@lru_cache(maxsize=8192)
def _render_card(card: Card) -> Markup:
    html = _template("form_card.html").render(card._asdict())
    return Markup(re.sub(r">\s+<", "><", html))


@cache
def _template(name: str) -> Template:
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("spectrum_spawner", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
