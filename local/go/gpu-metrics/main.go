// gpu-metrics tells Prometheus of the node's fake GPUs, by the names and labels of NVIDIA's
// dcgm-exporter. Which pod has which GPU comes from the kubelet; what the GPUs do is what somebody
// says over HTTP:
//
//	GET    /metrics       for Prometheus
//	GET    /gpus          every GPU, its pod and what it does, as JSON
//	PUT    /gpus/<which>  let it do something: {"utilisation": 85, "memory": 70000, "power": 300}
//	DELETE /gpus/<which>  let it idle again
//
// <which> is a GPU's index or UUID. Utilisation is in percent, memory in MiB, power in watts; any
// number is taken, and so is the text "NaN", since real exporters tell strange things too. null
// takes a value out of the metrics.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"
)

const (
	kubeletTimeout = 5 * time.Second
	maxBody        = 1 << 16
)

type exporter struct {
	kubelet *kubelet
	gpus    *gpus
}

func main() {
	listen := flag.String("listen", "127.0.0.1:9400", "address to serve HTTP at")
	socket := flag.String("socket", "", "the kubelet's pod-resources socket")
	resource := flag.String("resource", "nvidia.com/gpu", "name of the extended resource")
	node := flag.String("node", "", "the node's name")
	flag.Parse()
	kubelet, err := dialKubelet(*socket, *resource)
	if err != nil {
		log.Fatal(err)
	}
	server := http.Server{
		Addr:              *listen,
		Handler:           newHandler(&exporter{kubelet: kubelet, gpus: newGPUs(*node)}),
		ReadHeaderTimeout: 5 * time.Second,
	}
	log.Fatal(server.ListenAndServe())
}

func newHandler(e *exporter) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", e.onMetrics)
	mux.HandleFunc("GET /gpus", e.onList)
	mux.HandleFunc("PUT /gpus/{which}", e.onSet)
	mux.HandleFunc("DELETE /gpus/{which}", e.onReset)
	return mux
}

// look asks the kubelet for the devices of now. Without its answer nothing is told: numbers of a
// GPU under a former pod's name would be worse than none.
func (e *exporter) look(w http.ResponseWriter, r *http.Request) ([]device, bool) {
	ctx, cancel := context.WithTimeout(r.Context(), kubeletTimeout)
	defer cancel()
	devices, err := e.kubelet.listDevices(ctx)
	if err != nil {
		http.Error(w, fmt.Sprintf("the kubelet does not tell which GPUs there are: %v", err), http.StatusServiceUnavailable)
		return nil, false
	}
	return devices, true
}

func (e *exporter) onMetrics(w http.ResponseWriter, r *http.Request) {
	if devices, ok := e.look(w, r); ok {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		fmt.Fprint(w, e.gpus.expose(devices))
	}
}

func (e *exporter) onList(w http.ResponseWriter, r *http.Request) {
	if devices, ok := e.look(w, r); ok {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(e.gpus.list(devices)) //nolint:errcheck // whoever asked is gone
	}
}

func (e *exporter) onSet(w http.ResponseWriter, r *http.Request) {
	found, ok := e.find(w, r)
	if !ok {
		return
	}
	var changes map[string]any
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&changes); err != nil {
		http.Error(w, fmt.Sprintf("the body is no JSON object: %v", err), http.StatusBadRequest)
		return
	}
	if err := e.gpus.set(found.id, changes); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (e *exporter) onReset(w http.ResponseWriter, r *http.Request) {
	if found, ok := e.find(w, r); ok {
		e.gpus.reset(found.id)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (e *exporter) find(w http.ResponseWriter, r *http.Request) (device, bool) {
	devices, ok := e.look(w, r)
	if !ok {
		return device{}, false
	}
	which := r.PathValue("which")
	for index, one := range devices {
		if which == one.id || which == fmt.Sprint(index) {
			return one, true
		}
	}
	http.Error(w, fmt.Sprintf("there is no GPU %q", which), http.StatusNotFound)
	return device{}, false
}
