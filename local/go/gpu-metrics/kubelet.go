package main

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// device is one GPU of the node, and the container that has it; without one, these are empty.
type device struct {
	id        string
	namespace string
	pod       string
	container string
}

// kubelet answers which devices of one resource the node has, and whose they are.
type kubelet struct {
	client   podresources.PodResourcesListerClient
	resource string
}

// dialKubelet connects at the first call, and anew after the kubelet was restarted.
func dialKubelet(socket, resource string) (*kubelet, error) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &kubelet{client: podresources.NewPodResourcesListerClient(connection), resource: resource}, nil
}

// listDevices returns the devices in the order of their ids.
func (k *kubelet) listDevices(ctx context.Context) ([]device, error) {
	node, err := k.client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, err
	}
	pods, err := k.client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	owned := k.findOwners(pods)
	var devices []device
	for _, id := range k.listIDs(node.GetDevices()) {
		one := owned[id]
		one.id = id
		devices = append(devices, one)
	}
	slices.SortFunc(devices, func(a, b device) int { return cmp.Compare(a.id, b.id) })
	return devices, nil
}

func (k *kubelet) findOwners(pods *podresources.ListPodResourcesResponse) map[string]device {
	owned := map[string]device{}
	for _, pod := range pods.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, id := range k.listIDs(container.GetDevices()) {
				owned[id] = device{namespace: pod.GetNamespace(), pod: pod.GetName(), container: container.GetName()}
			}
		}
	}
	return owned
}

func (k *kubelet) listIDs(devices []*podresources.ContainerDevices) []string {
	var ids []string
	for _, one := range devices {
		if one.GetResourceName() == k.resource {
			ids = append(ids, one.GetDeviceIds()...)
		}
	}
	return ids
}
