package main

import (
	"context"
	"errors"
	"log"
	"os"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	wanted := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if d.backend.growsOnNode() {
		wanted = append(wanted, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, one := range wanted {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: one}},
		})
	}
	return answer, nil
}

// NodeStageVolume mounts a volume once for the whole node.
func (d *driver) NodeStageVolume(ctx context.Context, request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := d.check(request.GetVolumeCapability()); err != nil {
		return nil, err
	}
	who, release, err := d.claimAs(ctx, request.GetVolumeId(), request.GetSecrets())
	if err != nil {
		return nil, err
	}
	defer release()
	before, err := d.stages.find(request.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	stage := &stage{
		Volume:      request.GetVolumeId(),
		Path:        request.GetStagingTargetPath(),
		ReadOnly:    isReader(request.GetVolumeCapability()),
		Flags:       request.GetVolumeCapability().GetMount().GetMountFlags(),
		Context:     request.GetVolumeContext(),
		Credentials: who,
	}
	if before != nil && before.Volume != stage.Volume {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is staged at %s", before.Volume, stage.Path)
	}
	if err := d.ensureStaged(ctx, stage); err != nil {
		// The kubelet does not unstage what it never had.
		if mount, _ := findMount(stage.Path); mount == nil {
			_ = d.stages.forget(stage)
		}
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// ensureStaged mounts the stage unless it is mounted and answers; what has died is mounted anew.
func (d *driver) ensureStaged(ctx context.Context, stage *stage) error {
	mount, err := findMount(stage.Path)
	if err != nil {
		return err
	}
	if mount != nil {
		err := d.probeStage(ctx, stage)
		if !errors.Is(err, errDead) {
			return err
		}
		log.Printf("%s: mounting %s anew: %v", d.name, stage.Volume, err)
	}
	// Rests of a mount that died, or of a call that was ended half-way.
	if err := d.backend.unmount(ctx, stage, true); err != nil {
		return err
	}
	if err := os.MkdirAll(stage.Path, 0o750); err != nil {
		return err
	}
	// Before anything is made: whatever interrupts this, the next call takes away what there is.
	if err := d.stages.save(stage); err != nil {
		return err
	}
	if err := d.backend.mount(ctx, stage); err != nil {
		if rest := d.backend.unmount(context.WithoutCancel(ctx), stage, true); rest != nil {
			log.Printf("%s: after a mount that failed: %v", d.name, rest)
		}
		return err
	}
	return nil
}

func (d *driver) probeStage(ctx context.Context, stage *stage) error {
	// A file system in a block device answers from memory long after its disk has gone.
	if !isServed(d.backend.fuse(stage)) {
		return errDead
	}
	_, err := d.questions.statfs(ctx, stage.Path)
	return err
}

func (d *driver) NodeUnstageVolume(ctx context.Context, request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	release, err := d.claim(ctx, request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	one, err := d.stages.find(request.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	if one == nil {
		one = &stage{Volume: request.GetVolumeId(), Path: request.GetStagingTargetPath()}
	}
	if err := d.backend.unmount(ctx, one, false); err != nil {
		return nil, err
	}
	if err := awaitEnd(ctx, d.backend.fuse(one)); err != nil {
		return nil, err
	}
	if err := d.stages.forget(one); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// findStaged returns the stage at the path; an error when nothing is staged there.
func (d *driver) findStaged(volume, path string) (*stage, error) {
	one, err := d.stages.find(path)
	if err == nil && one == nil {
		err = status.Errorf(codes.FailedPrecondition, "volume %s is not staged", volume)
	}
	return one, err
}

// NodePublishVolume shows a staged volume to one pod.
func (d *driver) NodePublishVolume(ctx context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	release, err := d.claim(ctx, request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	one, err := d.findStaged(request.GetVolumeId(), request.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	// The kubelet stages a volume once: a mount that has died since is noticed here.
	if err := d.ensureStaged(ctx, one); err != nil {
		return nil, err
	}
	if err := d.publish(ctx, one, request); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *driver) publish(ctx context.Context, stage *stage, request *csi.NodePublishVolumeRequest) error {
	target := request.GetTargetPath()
	mounts, err := listMounts()
	if err != nil {
		return err
	}
	if request.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		if other := findOther(mounts, target); other != "" {
			return status.Errorf(codes.FailedPrecondition, "volume %s is for one pod and another one has it, at %s", stage.Volume, other)
		}
	}
	if isMounted(mounts, target) {
		_, err := d.questions.statfs(ctx, target)
		if !errors.Is(err, errDead) {
			return err
		}
		if err := unmount(ctx, target, true); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	return bind(stage.Path, target, request.GetReadonly() || isReader(request.GetVolumeCapability()))
}

func (d *driver) NodeUnpublishVolume(ctx context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	release, err := d.claim(ctx, request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	target := request.GetTargetPath()
	if err := unmount(ctx, target, false); err != nil {
		return nil, err
	}
	// Never what is in it: only an empty directory is one that nothing is mounted at.
	if err := removeIfThere(target); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (d *driver) NodeExpandVolume(ctx context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	release, err := d.claim(ctx, request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	one, err := d.findStaged(request.GetVolumeId(), request.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	if err := d.backend.grow(ctx, one); err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{}, nil
}

func (d *driver) NodeGetVolumeStats(ctx context.Context, request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	mount, err := findMount(request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if mount == nil {
		return nil, status.Errorf(codes.NotFound, "nothing is mounted at %s", request.GetVolumePath())
	}
	found, err := d.questions.statfs(ctx, request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: makeUsage(found)}, nil
}

// makeUsage reports bytes, and files where they are bounded: CephFS says that -1 are free.
func makeUsage(found *unix.Statfs_t) []*csi.VolumeUsage {
	block := found.Frsize
	usage := []*csi.VolumeUsage{{
		Unit:      csi.VolumeUsage_BYTES,
		Total:     int64(found.Blocks) * block,
		Available: int64(found.Bavail) * block,
		Used:      int64(found.Blocks-found.Bfree) * block,
	}}
	if found.Ffree <= found.Files {
		usage = append(usage, &csi.VolumeUsage{
			Unit:      csi.VolumeUsage_INODES,
			Total:     int64(found.Files),
			Available: int64(found.Ffree),
			Used:      int64(found.Files - found.Ffree),
		})
	}
	return usage
}

// isReader tells whether nobody may write to the volume on this node: by its access mode, or by the
// mount option `ro` of its PersistentVolume. The kubelet passes on no csi.readOnly of that.
func isReader(capability *csi.VolumeCapability) bool {
	return slices.Contains(capability.GetMount().GetMountFlags(), "ro") || slices.Contains([]csi.VolumeCapability_AccessMode_Mode{
		csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
	}, capability.GetAccessMode().GetMode())
}

func isMounted(mounts []mountPoint, path string) bool {
	return slices.ContainsFunc(mounts, func(one mountPoint) bool { return one.path == path })
}

// findOther returns where another pod has the volume of the target, "" for nowhere. The kubelet's
// targets differ in the pod's uid alone.
func findOther(mounts []mountPoint, target string) string {
	at := strings.LastIndex(target, "/volumes/")
	if at < 0 {
		return ""
	}
	for _, one := range mounts {
		if one.path != target && strings.HasSuffix(one.path, target[at:]) {
			return one.path
		}
	}
	return ""
}
