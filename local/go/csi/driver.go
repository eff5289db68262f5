package main

import (
	"context"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const version = "1.0.0"

// patience is how long a call waits for another one of the same volume.
const patience = 10 * time.Second

// backend is one kind of storage: what differs between CephFS and RBD.
type backend interface {
	// check refuses a capability that this storage cannot give.
	check(capability *csi.VolumeCapability) error
	// create makes the volume, or finds the one of that name, and returns it with its real size.
	create(ctx context.Context, name string, size capacity, parameters map[string]string, who credentials) (*csi.Volume, error)
	// remove deletes the volume; one that is gone is no error.
	remove(ctx context.Context, id string, who credentials) error
	// resize grows the volume, never shrinks it, and returns its size.
	resize(ctx context.Context, id string, size int64, who credentials) (int64, error)
	// growsOnNode tells whether a node that has it mounted must grow the file system too.
	growsOnNode() bool
	// mount mounts the volume at the staging path, which is an empty directory.
	mount(ctx context.Context, stage *stage) error
	// fuse returns where the FUSE process of the stage mounts.
	fuse(stage *stage) string
	// unmount takes away all that mount made, and what was made of it; force detaches what is in
	// use or no longer answers. The FUSE process then ends by itself.
	unmount(ctx context.Context, stage *stage, force bool) error
	// grow makes a mounted file system as large as its volume.
	grow(ctx context.Context, stage *stage) error
}

// driver is one CSI driver by its name: its services share the locks of its volumes.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	name      string
	node      string
	backend   backend
	stages    stages
	questions questions
	// gates let one call at a time through to a volume, by its id.
	gates sync.Map
}

// serve answers on the driver's socket and offers it to the kubelet, until the context ends.
// Sockets are made anew: that is how a kubelet notices a driver that was started again.
func (d *driver) serve(ctx context.Context, kubelet string) error {
	socket := filepath.Join(kubelet, "plugins", d.name, "csi.sock")
	server := grpc.NewServer(grpc.UnaryInterceptor(d.finish))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	listener, err := listen(socket)
	if err != nil {
		return err
	}
	registrar := grpc.NewServer()
	registration.RegisterRegistrationServer(registrar, &registrant{driver: d, socket: socket})
	door, err := listen(filepath.Join(kubelet, "plugins_registry", d.name+"-reg.sock"))
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(listener) }()
	go func() { failed <- registrar.Serve(door) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return net.Listen("unix", socket)
}

// claim holds a volume for one call; the next waits a while and is then told to come back.
func (d *driver) claim(ctx context.Context, volume string) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	entry, _ := d.gates.LoadOrStore(volume, make(chan struct{}, 1))
	gate := entry.(chan struct{})
	select {
	case gate <- struct{}{}:
		return func() { <-gate }, nil
	case <-ctx.Done():
		return nil, status.Errorf(codes.Aborted, "another call for volume %s still runs", volume)
	}
}

// claimAs is claim for a call that brings the credentials to work with.
func (d *driver) claimAs(ctx context.Context, volume string, secrets map[string]string) (who credentials, release func(), err error) {
	who, err = readCredentials(secrets)
	if err != nil {
		return who, nil, err
	}
	release, err = d.claim(ctx, volume)
	return who, release, err
}

// finish gives each error its code and writes a line about it; requests hold secrets and are not
// shown.
func (d *driver) finish(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, request)
	if err == nil {
		return answer, nil
	}
	err = toStatus(err)
	log.Printf("%s %s: %v", d.name, filepath.Base(info.FullMethod), err)
	return nil, err
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: version}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{
			Type: csi.PluginCapability_Service_CONTROLLER_SERVICE,
		}}},
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE,
		}}},
	}}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// registrant introduces the driver to the kubelet.
type registrant struct {
	registration.UnimplementedRegistrationServer
	driver *driver
	socket string
}

func (r *registrant) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.driver.name, Endpoint: r.socket, SupportedVersions: []string{version},
	}, nil
}

func (r *registrant) NotifyRegistrationStatus(_ context.Context, answer *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !answer.PluginRegistered {
		log.Printf("%s: the kubelet did not register it: %s", r.driver.name, answer.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
