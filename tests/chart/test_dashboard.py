"""The dashboard that Grafana's sidecar finds, for who wants one."""

import json

from tests.chart.helm import ACCEPTED, CHART, Helm, merge

DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())


def test_nobody_gets_a_dashboard_unasked(helm: Helm) -> None:
    found = {(one["kind"], one["metadata"]["name"]) for one in helm.render()}
    assert ("ConfigMap", "dashboard") not in found


def test_the_sidecar_finds_the_dashboard_by_its_label(helm: Helm) -> None:
    dashboard = {"enabled": True, "annotations": {"grafana_folder": "GPUs"}}
    values = merge(ACCEPTED, {"service": {"dashboard": dashboard}})
    found = helm.find("ConfigMap", "dashboard", values)
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"grafana_folder": "GPUs"}
    assert {name: json.loads(text) for name, text in found["data"].items()} == {
        "spectrum-gpus.json": DASHBOARD
    }


def test_every_panel_asks_the_prometheus_that_is_chosen() -> None:
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    asked = [target for panel in panels for target in panel["targets"]]
    sources = {json.dumps(one["datasource"], sort_keys=True) for one in (*panels, *asked)}
    assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
