package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// leastImage is the smallest device that mkfs.xfs takes.
const leastImage = 300 * mebibyte

// rbd gives images of RBD with an XFS in them: rbd-fuse shows an image as a file, and a loop
// device makes that file a disk.
type rbd struct {
	ceph  *ceph
	state string
}

func (r *rbd) check(capability *csi.VolumeCapability) error {
	switch capability.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER:
		return status.Error(codes.InvalidArgument, "a block device's file system has one writing node: ReadWriteMany needs CephFS")
	}
	if kind := capability.GetMount().GetFsType(); kind != "" && kind != "xfs" {
		return status.Errorf(codes.InvalidArgument, "file system %s is not served, only xfs", kind)
	}
	return nil
}

func (r *rbd) growsOnNode() bool { return true }

func (r *rbd) create(ctx context.Context, name string, size capacity, parameters map[string]string, who credentials) (*csi.Volume, error) {
	if err := r.ceph.checkCluster(parameters); err != nil {
		return nil, err
	}
	pool := parameters["pool"]
	if pool == "" {
		return nil, status.Error(codes.InvalidArgument, "the storage class has no parameter pool")
	}
	bytes, err := size.round(leastImage)
	if err != nil {
		return nil, err
	}
	name = makeVolumeName(name)
	_, err = r.ceph.rbd(ctx, who, "create", pool+"/"+name, "--size", fmt.Sprintf("%dB", bytes), "--image-feature", "layering")
	if isErrno(err, syscall.ENOENT) {
		return nil, status.Errorf(codes.InvalidArgument, "Ceph has no pool %q", pool)
	}
	if isErrno(err, syscall.EEXIST) {
		bytes, err = r.measure(ctx, pool+"/"+name, who)
	}
	if err != nil {
		return nil, err
	}
	if !size.fits(bytes) {
		return nil, status.Errorf(codes.AlreadyExists, "image %s exists with another size, %d bytes", name, bytes)
	}
	return &csi.Volume{
		VolumeId:      pool + ":" + name,
		CapacityBytes: bytes,
		VolumeContext: map[string]string{"clusterID": r.ceph.clusterID, "pool": pool, "imageName": name},
	}, nil
}

// measure returns the size of the image, in bytes.
func (r *rbd) measure(ctx context.Context, image string, who credentials) (int64, error) {
	text, err := r.ceph.rbd(ctx, who, "info", image, "--format", "json")
	if err != nil {
		return 0, err
	}
	var found struct{ Size int64 }
	return found.Size, json.Unmarshal(text, &found)
}

func (r *rbd) remove(ctx context.Context, id string, who credentials) error {
	pool, name, err := splitID(id)
	if err != nil {
		// Not one of ours, so there is nothing to remove.
		return nil
	}
	_, err = r.ceph.rbd(ctx, who, "rm", pool+"/"+name, "--no-progress")
	if isErrno(err, syscall.ENOENT) {
		return nil
	}
	if isErrno(err, syscall.EBUSY) {
		return status.Errorf(codes.FailedPrecondition, "image %s is still open", name)
	}
	return err
}

func (r *rbd) resize(ctx context.Context, id string, size int64, who credentials) (int64, error) {
	pool, name, err := splitID(id)
	if err != nil {
		return 0, err
	}
	now, err := r.measure(ctx, pool+"/"+name, who)
	if err != nil || now >= size {
		return now, err
	}
	_, err = r.ceph.rbd(ctx, who, "resize", pool+"/"+name, "--size", fmt.Sprintf("%dB", size), "--no-progress")
	return size, err
}

func (r *rbd) mount(ctx context.Context, stage *stage) error {
	if err := r.ceph.checkCluster(stage.Context); err != nil {
		return err
	}
	pool, name := stage.Context["pool"], stage.Context["imageName"]
	if err := r.checkUnused(ctx, pool+"/"+name, stage.Credentials); err != nil {
		return err
	}
	directory, file := r.place(stage)
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	key, err := writeKey(stage.Credentials)
	if err != nil {
		return err
	}
	defer os.Remove(key)
	command := []string{
		"rbd-fuse", directory, "-f", "-c", r.ceph.conf, "-p", pool, "-r", name,
		"--name=client." + stage.Credentials.User,
		"--keyfile=" + key,
		// Its table of images has no lock: the kernel is to ask for attributes only when told to.
		"-o", "attr_timeout=86400",
	}
	if err := startFuse(ctx, command, directory, directory+".log"); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	var found unix.Stat_t
	if err := within(ctx, fuseLimit, func() error { return unix.Stat(file, &found) }); err != nil {
		return status.Errorf(codes.Unavailable, "rbd-fuse does not show image %s: %v: %s", name, err, lastLine(readLog(directory+".log")))
	}
	device, err := attachLoop(ctx, file, stage.ReadOnly)
	if err != nil {
		return err
	}
	if err := ensureXFS(ctx, device, stage.ReadOnly); err != nil {
		return err
	}
	return mountXFS(ctx, device, stage)
}

// checkUnused refuses an image that somebody has open, here or on another node: two writers
// would destroy its file system. One that crashed counts for half a minute more.
func (r *rbd) checkUnused(ctx context.Context, image string, who credentials) error {
	text, err := r.ceph.rbd(ctx, who, "status", image, "--format", "json")
	if err != nil {
		return err
	}
	var found struct{ Watchers []struct{ Address string } }
	if err := json.Unmarshal(text, &found); err != nil {
		return err
	}
	if len(found.Watchers) > 0 {
		return status.Errorf(codes.FailedPrecondition, "image %s is in use by %s", image, found.Watchers[0].Address)
	}
	return nil
}

func (r *rbd) fuse(stage *stage) string {
	directory, _ := r.place(stage)
	return directory
}

func (r *rbd) unmount(ctx context.Context, stage *stage, force bool) error {
	if err := unmount(ctx, stage.Path, force); err != nil {
		return err
	}
	directory, file := r.place(stage)
	if err := detachLoops(ctx, file, force); err != nil {
		return err
	}
	if err := unmount(ctx, directory, force); err != nil {
		return err
	}
	return errors.Join(removeIfThere(directory), removeIfThere(directory+".log"))
}

// grow follows an image that has grown: file, loop device and file system in turn.
func (r *rbd) grow(ctx context.Context, stage *stage) error {
	size, err := r.measure(ctx, stage.Context["pool"]+"/"+stage.Context["imageName"], stage.Credentials)
	if err != nil {
		return err
	}
	_, file := r.place(stage)
	if err := refreshSize(ctx, file, size); err != nil {
		return err
	}
	devices, err := findLoops(file)
	if err != nil || len(devices) == 0 {
		return errors.Join(fmt.Errorf("no loop device holds %s", file), err)
	}
	if err := runTool(ctx, "losetup", "--set-capacity", devices[0]); err != nil {
		return err
	}
	return runTool(ctx, "xfs_growfs", stage.Path)
}

// refreshSize makes the kernel ask for the file's size anew.
func refreshSize(ctx context.Context, file string, size int64) error {
	return within(ctx, commandLimit, func() error {
		var found unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, file, unix.AT_STATX_FORCE_SYNC, unix.STATX_SIZE, &found)
		if err == nil && int64(found.Size) < size {
			err = status.Errorf(codes.Unavailable, "rbd-fuse still shows %d of %d bytes", found.Size, size)
		}
		return err
	})
}

// place returns the directory of the stage's rbd-fuse and the image's file in it.
func (r *rbd) place(stage *stage) (directory, file string) {
	directory = filepath.Join(r.state, stage.key())
	return directory, filepath.Join(directory, stage.Context["imageName"])
}
