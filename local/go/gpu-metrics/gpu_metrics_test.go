package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const gpu = "nvidia.com/gpu"

// standIn answers as a kubelet would whose node has two GPUs, the first of them alice's.
type standIn struct {
	podresources.UnimplementedPodResourcesListerServer
	away bool
}

func (s *standIn) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	if s.away {
		return nil, errors.New("not now")
	}
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
		{ResourceName: gpu, DeviceIds: []string{"GPU-b", "GPU-a"}},
		{ResourceName: "other/device", DeviceIds: []string{"0"}},
	}}, nil
}

func (s *standIn) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{
		Name: "jupyter-alice", Namespace: "spectrum-flight",
		Containers: []*podresources.ContainerResources{{
			Name:    "notebook",
			Devices: []*podresources.ContainerDevices{{ResourceName: gpu, DeviceIds: []string{"GPU-a"}}},
		}},
	}}}, nil
}

func start(t *testing.T) (*standIn, http.Handler) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	kubelet, server := &standIn{}, grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, kubelet)
	go server.Serve(listener) //nolint:errcheck // ends with Stop
	t.Cleanup(server.Stop)
	client, err := dialKubelet(socket, gpu)
	if err != nil {
		t.Fatal(err)
	}
	return kubelet, newHandler(&exporter{kubelet: client, gpus: newGPUs("node-1")})
}

func ask(handler http.Handler, method, path, body string) (int, string) {
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(method, path, strings.NewReader(body)))
	return answer.Code, answer.Body.String()
}

// read returns the lines of one metric.
func read(t *testing.T, handler http.Handler, name string) []string {
	t.Helper()
	status, text := ask(handler, "GET", "/metrics", "")
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	var found []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+"{") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

const (
	first  = `gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="node-1",container="notebook",namespace="spectrum-flight",pod="jupyter-alice"`
	second = `gpu="1",UUID="GPU-b",device="nvidia1",modelName="NVIDIA A100-SXM4-80GB",Hostname="node-1"`
)

func expect(t *testing.T, handler http.Handler, name string, wanted ...string) {
	t.Helper()
	if found := read(t, handler, name); !slices.Equal(found, wanted) {
		t.Errorf("%s: found %v, wanted %v", name, found, wanted)
	}
}

func TestAGPUOfAPodBearsItsNameAndAFreeOneNone(t *testing.T) {
	_, handler := start(t)
	expect(t, handler, "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_POWER_USAGE{"+first+"} 55", "DCGM_FI_DEV_POWER_USAGE{"+second+"} 55")
}

func TestWhatWasSaidIsToldInTheUnitsOfEachMetric(t *testing.T) {
	_, handler := start(t)
	for _, which := range []string{"0", "GPU-a"} {
		if status, text := ask(handler, "PUT", "/gpus/"+which, `{"utilisation": 85, "memory": 70000}`); status != http.StatusNoContent {
			t.Fatal(status, text)
		}
	}
	expect(t, handler, "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL{"+first+"} 85", "DCGM_FI_DEV_GPU_UTIL{"+second+"} 0")
	expect(t, handler, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE{"+first+"} 0.85", "DCGM_FI_PROF_GR_ENGINE_ACTIVE{"+second+"} 0")
	expect(t, handler, "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED{"+first+"} 70000", "DCGM_FI_DEV_FB_USED{"+second+"} 0")
	expect(t, handler, "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_FREE{"+first+"} 11920", "DCGM_FI_DEV_FB_FREE{"+second+"} 81920")
	ask(handler, "DELETE", "/gpus/0", "")
	expect(t, handler, "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL{"+first+"} 0", "DCGM_FI_DEV_GPU_UTIL{"+second+"} 0")
}

func TestMemoryThatNobodyMeasuresIsNeitherUsedNorFree(t *testing.T) {
	_, handler := start(t)
	ask(handler, "PUT", "/gpus/0", `{"memory": null}`)
	expect(t, handler, "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED{"+second+"} 0")
	expect(t, handler, "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_FREE{"+second+"} 81920")
}

func TestAGPUMayTellNothingOrNonsense(t *testing.T) {
	_, handler := start(t)
	ask(handler, "PUT", "/gpus/0", `{"utilisation": null, "power": "NaN", "memory": -1}`)
	expect(t, handler, "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL{"+second+"} 0")
	expect(t, handler, "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_POWER_USAGE{"+first+"} NaN", "DCGM_FI_DEV_POWER_USAGE{"+second+"} 55")
	expect(t, handler, "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED{"+first+"} -1", "DCGM_FI_DEV_FB_USED{"+second+"} 0")
	wanted := `{"UUID":"GPU-a","container":"notebook","gpu":0,"memory":-1,"namespace":"spectrum-flight","pod":"jupyter-alice","power":null}`
	if _, text := ask(handler, "GET", "/gpus", ""); !strings.Contains(text, wanted) {
		t.Errorf("found %s, wanted %s", text, wanted)
	}
}

func TestWhatCannotBeMeantChangesNothing(t *testing.T) {
	_, handler := start(t)
	for body, wanted := range map[string]int{
		`{"power": 300, "fan": 1}`:        http.StatusBadRequest,
		`{"power": 300, "memory": "lot"}`: http.StatusBadRequest,
		`[300]`:                           http.StatusBadRequest,
	} {
		if status, text := ask(handler, "PUT", "/gpus/0", body); status != wanted {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if status, text := ask(handler, "PUT", "/gpus/2", `{}`); status != http.StatusNotFound {
		t.Error(status, text)
	}
	expect(t, handler, "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_POWER_USAGE{"+first+"} 55", "DCGM_FI_DEV_POWER_USAGE{"+second+"} 55")
}

func TestWithoutTheKubeletNothingIsTold(t *testing.T) {
	kubelet, handler := start(t)
	kubelet.away = true
	if status, text := ask(handler, "GET", "/metrics", ""); status != http.StatusServiceUnavailable {
		t.Error(status, text)
	}
	kubelet.away = false
	expect(t, handler, "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED{"+first+"} 0", "DCGM_FI_DEV_FB_USED{"+second+"} 0")
}
