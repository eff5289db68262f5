package main

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const mebibyte = 1 << 20

// capacity is what a caller asks for, in bytes; a limit of 0 is none.
type capacity struct {
	required, limit int64
}

// round returns the size to make: what is required, at least `least`, in whole MiB.
func (c capacity) round(least int64) (int64, error) {
	size := (max(c.required, least) + mebibyte - 1) / mebibyte * mebibyte
	if c.limit > 0 && size > c.limit {
		return 0, status.Errorf(codes.OutOfRange, "the smallest possible size is %d bytes, more than the limit of %d", size, c.limit)
	}
	return size, nil
}

// fits tells whether an existing volume's size answers the request.
func (c capacity) fits(size int64) bool {
	return size >= c.required && (c.limit == 0 || size <= c.limit)
}

func readCapacity(size *csi.CapacityRange) capacity {
	return capacity{required: size.GetRequiredBytes(), limit: size.GetLimitBytes()}
}

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, one := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		// Without it nobody would tell ReadWriteOncePod from ReadWriteOnce.
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: one}},
		})
	}
	return answer, nil
}

func (d *driver) CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if request.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "the volume has no name")
	}
	if request.GetVolumeContentSource() != nil {
		return nil, status.Error(codes.InvalidArgument, "volumes are made empty: this driver restores and clones nothing")
	}
	if err := d.checkAll(request.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	who, release, err := d.claimAs(ctx, request.GetName(), request.GetSecrets())
	if err != nil {
		return nil, err
	}
	defer release()
	volume, err := d.backend.create(ctx, request.GetName(), readCapacity(request.GetCapacityRange()), request.GetParameters(), who)
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: volume}, nil
}

func (d *driver) DeleteVolume(ctx context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	who, release, err := d.claimAs(ctx, request.GetVolumeId(), request.GetSecrets())
	if err != nil {
		return nil, err
	}
	defer release()
	if err := d.backend.remove(ctx, request.GetVolumeId(), who); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (d *driver) ControllerExpandVolume(ctx context.Context, request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	size, err := readCapacity(request.GetCapacityRange()).round(mebibyte)
	if err != nil {
		return nil, err
	}
	who, release, err := d.claimAs(ctx, request.GetVolumeId(), request.GetSecrets())
	if err != nil {
		return nil, err
	}
	defer release()
	size, err = d.backend.resize(ctx, request.GetVolumeId(), size, who)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: d.backend.growsOnNode()}, nil
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := d.checkAll(request.GetVolumeCapabilities()); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeCapabilities: request.GetVolumeCapabilities(),
	}}, nil
}

func (d *driver) checkAll(capabilities []*csi.VolumeCapability) error {
	if len(capabilities) == 0 {
		return status.Error(codes.InvalidArgument, "the volume has no capabilities")
	}
	for _, one := range capabilities {
		if err := d.check(one); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) check(capability *csi.VolumeCapability) error {
	if capability.GetMount() == nil {
		return status.Error(codes.InvalidArgument, "only file systems are served, not raw block devices")
	}
	return d.backend.check(capability)
}
