package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// group is the subvolume group in which ceph-csi too makes its volumes.
const group = "csi"

// cephfs gives subvolumes of CephFS, with their size as quota, mounted by ceph-fuse.
type cephfs struct {
	ceph  *ceph
	state string
}

// subvolume is what Ceph tells about one; a quota that is not set comes as text.
type subvolume struct {
	Path  string `json:"path"`
	Quota any    `json:"bytes_quota"`
}

func (s *subvolume) size() int64 {
	size, _ := s.Quota.(float64)
	return int64(size)
}

func (c *cephfs) check(*csi.VolumeCapability) error { return nil }

func (c *cephfs) growsOnNode() bool { return false }

func (c *cephfs) create(ctx context.Context, name string, size capacity, parameters map[string]string, who credentials) (*csi.Volume, error) {
	if err := c.ceph.checkCluster(parameters); err != nil {
		return nil, err
	}
	fs := parameters["fsName"]
	if fs == "" {
		return nil, status.Error(codes.InvalidArgument, "the storage class has no parameter fsName")
	}
	quota, err := size.round(mebibyte)
	if err != nil {
		return nil, err
	}
	name = makeVolumeName(name)
	found, err := c.inspect(ctx, fs, name, who)
	if isErrno(err, syscall.ENOENT) {
		words := []string{"fs", "subvolume", "create", fs, name, "--group_name", group, "--size", strconv.FormatInt(quota, 10)}
		if pool := parameters["pool"]; pool != "" {
			words = append(words, "--pool_layout", pool)
		}
		if _, err = c.ceph.command(ctx, who, words...); err == nil {
			found, err = c.inspect(ctx, fs, name, who)
		}
	}
	if isErrno(err, syscall.ENOENT) || isErrno(err, syscall.EINVAL) {
		// The file system, its group or the pool: Ceph says which.
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err != nil {
		return nil, err
	}
	if !size.fits(found.size()) {
		return nil, status.Errorf(codes.AlreadyExists, "subvolume %s exists with another size, %d bytes", name, found.size())
	}
	return &csi.Volume{
		VolumeId:      fs + ":" + name,
		CapacityBytes: found.size(),
		VolumeContext: map[string]string{
			"clusterID": c.ceph.clusterID, "fsName": fs, "subvolumeName": name, "subvolumePath": found.Path,
		},
	}, nil
}

func (c *cephfs) inspect(ctx context.Context, fs, name string, who credentials) (*subvolume, error) {
	text, err := c.ceph.command(ctx, who, "fs", "subvolume", "info", fs, name, "--group_name", group, "--format", "json")
	if err != nil {
		return nil, err
	}
	found := &subvolume{}
	return found, json.Unmarshal(text, found)
}

func (c *cephfs) remove(ctx context.Context, id string, who credentials) error {
	fs, name, err := splitID(id)
	if err != nil {
		// Not one of ours, so there is nothing to remove.
		return nil
	}
	_, err = c.ceph.command(ctx, who, "fs", "subvolume", "rm", fs, name, "--group_name", group)
	if isErrno(err, syscall.ENOENT) {
		return nil
	}
	return err
}

func (c *cephfs) resize(ctx context.Context, id string, size int64, who credentials) (int64, error) {
	fs, name, err := splitID(id)
	if err != nil {
		return 0, err
	}
	found, err := c.inspect(ctx, fs, name, who)
	if err != nil {
		return 0, err
	}
	if found.size() >= size {
		return found.size(), nil
	}
	_, err = c.ceph.command(ctx, who, "fs", "subvolume", "resize", fs, name, strconv.FormatInt(size, 10), "--group_name", group, "--no_shrink")
	return size, err
}

// mount runs ceph-fuse for the stage. Its caches are bounded: each volume has a process.
func (c *cephfs) mount(ctx context.Context, stage *stage) error {
	if err := c.ceph.checkCluster(stage.Context); err != nil {
		return err
	}
	root, err := findRoot(stage.Context)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.state, 0o700); err != nil {
		return err
	}
	key, err := writeKey(stage.Credentials)
	if err != nil {
		return err
	}
	defer os.Remove(key)
	options := []string{"nonempty"}
	if stage.ReadOnly {
		options = append(options, "ro")
	}
	command := []string{
		"ceph-fuse", stage.Path, "-f",
		"--conf=" + c.ceph.conf,
		"--name=client." + stage.Credentials.User,
		"--keyfile=" + key,
		"--client_mountpoint=" + root,
		"--client_fs=" + stage.Context["fsName"],
		fmt.Sprintf("--client_mount_timeout=%d", int(connectLimit.Seconds())),
		"--client_oc_size=33554432",
		"--client_cache_size=4096",
		// Ceph was away for longer than it keeps sessions: come back with a new one.
		"--client_reconnect_stale=true",
		"-o", strings.Join(append(options, stage.Flags...), ","),
	}
	err = startFuse(ctx, command, stage.Path, filepath.Join(c.state, stage.key()+".log"))
	return c.explain(err, root, stage)
}

// explain finds the reason in what ceph-fuse said.
func (c *cephfs) explain(err error, root string, stage *stage) error {
	var end *fuseEnd
	if !errors.As(err, &end) {
		return err
	}
	fs, user := stage.Context["fsName"], stage.Credentials.User
	switch {
	case strings.Contains(end.said, "handle_auth_bad_method"):
		return status.Errorf(codes.Unauthenticated, "Ceph refuses the key of client.%s", user)
	case end.late, strings.Contains(end.said, "timed out"):
		return status.Errorf(codes.Unavailable, "Ceph does not answer: file system %s could not be mounted", fs)
	case strings.Contains(end.said, "mount failed with (2)"):
		return status.Errorf(codes.NotFound, "there is no directory %s in file system %s", root, fs)
	case strings.Contains(end.said, "mount failed with (13)"), strings.Contains(end.said, "mount failed with (1)"):
		return status.Errorf(codes.PermissionDenied, "Ceph forbids client.%s to mount %s of file system %s", user, root, fs)
	}
	return status.Errorf(codes.Internal, "%v", end)
}

func (c *cephfs) fuse(stage *stage) string { return stage.Path }

func (c *cephfs) unmount(ctx context.Context, stage *stage, force bool) error {
	if err := unmount(ctx, stage.Path, force); err != nil {
		return err
	}
	return removeIfThere(filepath.Join(c.state, stage.key()+".log"))
}

func (c *cephfs) grow(context.Context, *stage) error { return nil }

// findRoot returns the directory of a volume: of a subvolume, or one that a static volume names.
func findRoot(parameters map[string]string) (string, error) {
	root := parameters["subvolumePath"]
	if parameters["staticVolume"] == "true" {
		root = parameters["rootPath"]
	}
	if !strings.HasPrefix(root, "/") {
		return "", status.Error(codes.InvalidArgument, "the volume names no directory: a static one needs staticVolume and rootPath")
	}
	return root, nil
}

// makeVolumeName names a volume as ceph-csi does, by the uid that the provisioner made it from.
func makeVolumeName(name string) string {
	return "csi-vol-" + strings.TrimPrefix(name, "pvc-")
}

// splitID returns the file system or pool and the volume's name.
func splitID(id string) (place, name string, err error) {
	at := strings.LastIndex(id, ":")
	if at < 1 || !strings.HasPrefix(id[at+1:], "csi-vol-") {
		return "", "", status.Errorf(codes.NotFound, "volume %s is not one that this driver made", id)
	}
	return id[:at], id[at+1:], nil
}
