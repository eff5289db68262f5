package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// fakeGPUs offers devices that have an id and nothing else, through the kubelet's real device
// plugin API, so that scheduling, quota and the PodResources API see what a GPU node would show.
type fakeGPUs struct {
	plugin.UnimplementedDevicePluginServer
	devices []*plugin.Device
}

func (f *fakeGPUs) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

func (f *fakeGPUs) ListAndWatch(_ *plugin.Empty, stream plugin.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&plugin.ListAndWatchResponse{Devices: f.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (f *fakeGPUs) Allocate(_ context.Context, request *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	response := &plugin.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &plugin.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		})
	}
	return response, nil
}

func runFakeGPUPlugin(args []string) error {
	flags := flag.NewFlagSet("fake-gpu-plugin", flag.ExitOnError)
	directory := flags.String("directory", "/var/lib/kubelet/device-plugins", "the kubelet's device plugin directory")
	resource := flags.String("resource", "nvidia.com/gpu", "name of the extended resource")
	count := flags.Int("count", 4, "how many devices to offer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	gpus := &fakeGPUs{}
	for i := range *count {
		gpus.devices = append(gpus.devices, &plugin.Device{ID: fmt.Sprintf("GPU-fake-%04d", i), Health: plugin.Healthy})
	}
	for {
		if err := serveUntilKubeletRestarts(gpus, *directory, *resource); err != nil {
			log.Printf("fake-gpu-plugin: %v; again in 1 s", err)
			time.Sleep(time.Second)
		}
	}
}

// serveUntilKubeletRestarts registers once and returns when the kubelet's socket was made anew:
// a starting kubelet removes every plugin socket and forgets every registration.
func serveUntilKubeletRestarts(gpus *fakeGPUs, directory, resource string) error {
	kubelet := filepath.Join(directory, "kubelet.sock")
	before, err := os.Stat(kubelet)
	if err != nil {
		return err
	}
	const endpoint = "fake-gpu.sock"
	socket := filepath.Join(directory, endpoint)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	plugin.RegisterDevicePluginServer(server, gpus)
	go server.Serve(listener) //nolint:errcheck // ends with Stop below
	defer server.Stop()
	if err := register(kubelet, endpoint, resource); err != nil {
		return err
	}
	for {
		time.Sleep(time.Second)
		now, err := os.Stat(kubelet)
		if err == nil && os.SameFile(before, now) {
			if _, err := os.Stat(socket); err == nil {
				continue
			}
		}
		return nil
	}
}

func register(kubelet, endpoint, resource string) error {
	connection, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = plugin.NewRegistrationClient(connection).Register(ctx, &plugin.RegisterRequest{
		Version: plugin.Version, Endpoint: endpoint, ResourceName: resource,
	})
	return err
}
