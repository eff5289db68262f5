package main

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
)

const (
	model       = "NVIDIA A100-SXM4-80GB"
	framebuffer = 81920 // MiB
)

// metric is one of dcgm-exporter's; `scale` makes its number of what was said, and `from` is what
// that is added to.
type metric struct {
	name  string
	help  string
	said  string
	scale float64
	from  float64
}

var metrics = []metric{
	{"DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", "utilisation", 1, 0},
	{"DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", "memory", -1, framebuffer},
	{"DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", "memory", 1, 0},
	{"DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", "power", 1, 0},
	{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.", "utilisation", 0.01, 0},
}

// idle is what a GPU does that nobody uses: a card draws power all the same.
func idle() map[string]float64 {
	return map[string]float64{"utilisation": 0, "memory": 0, "power": 55}
}

// gpus remembers what each GPU does, by its id; one of which nothing was said idles.
type gpus struct {
	node string
	lock sync.Mutex
	does map[string]map[string]float64
}

func newGPUs(node string) *gpus {
	return &gpus{node: node, does: map[string]map[string]float64{}}
}

// set changes what a GPU does: all that was said, or nothing when any of it cannot be.
func (g *gpus) set(id string, changes map[string]any) error {
	g.lock.Lock()
	defer g.lock.Unlock()
	after := maps.Clone(g.find(id))
	for name, value := range changes {
		if _, known := idle()[name]; !known {
			return fmt.Errorf("%q: known are utilisation, memory and power", name)
		}
		switch value := value.(type) {
		case nil:
			delete(after, name)
		case float64:
			after[name] = value
		default:
			if value != "NaN" {
				return fmt.Errorf("%s: %v is no number", name, value)
			}
			after[name] = math.NaN()
		}
	}
	g.does[id] = after
	return nil
}

func (g *gpus) reset(id string) {
	g.lock.Lock()
	defer g.lock.Unlock()
	delete(g.does, id)
}

// expose writes the text that Prometheus reads.
func (g *gpus) expose(devices []device) string {
	g.lock.Lock()
	defer g.lock.Unlock()
	var text strings.Builder
	for _, one := range metrics {
		fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s gauge\n", one.name, one.help, one.name)
		for index, device := range devices {
			if value, told := g.find(device.id)[one.said]; told {
				number := strconv.FormatFloat(one.from+value*one.scale, 'g', -1, 64)
				fmt.Fprintf(&text, "%s{%s} %s\n", one.name, g.label(index, device), number)
			}
		}
	}
	return text.String()
}

// list describes every GPU; a value that is no number is null, as JSON has none for it.
func (g *gpus) list(devices []device) []map[string]any {
	g.lock.Lock()
	defer g.lock.Unlock()
	found := []map[string]any{}
	for index, device := range devices {
		one := map[string]any{
			"gpu": index, "UUID": device.id,
			"namespace": device.namespace, "pod": device.pod, "container": device.container,
		}
		for name, value := range g.find(device.id) {
			one[name] = value
			if math.IsNaN(value) {
				one[name] = nil
			}
		}
		found = append(found, one)
	}
	return found
}

func (g *gpus) find(id string) map[string]float64 {
	if does, said := g.does[id]; said {
		return does
	}
	return idle()
}

// label writes a GPU's labels; a GPU that no pod has bears none of a pod.
func (g *gpus) label(index int, one device) string {
	text := fmt.Sprintf(`gpu="%d",UUID="%s",device="nvidia%d",modelName="%s",Hostname="%s"`, index, one.id, index, model, g.node)
	if one.pod != "" {
		text += fmt.Sprintf(`,container="%s",namespace="%s",pod="%s"`, one.container, one.namespace, one.pod)
	}
	return text
}
