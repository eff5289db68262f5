package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestMountsAreReadWithEscapesAndOptionalFields(t *testing.T) {
	text := "24 1 254:0 / / rw shared:1 master:2 - ext4 /dev/vda rw\n" +
		"99 24 0:50 /a\\040b /mnt/one\\040two ro,nosuid - fuse.ceph-fuse ceph-fuse rw\n" +
		"torn line\n"
	want := []mountPoint{
		{device: "254:0", root: "/", path: "/", kind: "ext4"},
		{device: "0:50", root: "/a b", path: "/mnt/one two", kind: "fuse.ceph-fuse"},
	}
	if got := parseMounts(text); !reflect.DeepEqual(got, want) {
		t.Errorf("parseMounts = %v, want %v", got, want)
	}
}

func TestSizesAreWholeMebibytesWithinTheLimit(t *testing.T) {
	for _, one := range []struct {
		asked capacity
		least int64
		want  int64
		code  codes.Code
	}{
		{capacity{}, mebibyte, mebibyte, codes.OK},
		{capacity{required: mebibyte + 1}, mebibyte, 2 * mebibyte, codes.OK},
		{capacity{required: 5}, leastImage, leastImage, codes.OK},
		{capacity{required: mebibyte, limit: mebibyte}, mebibyte, mebibyte, codes.OK},
		{capacity{required: 5, limit: mebibyte}, leastImage, 0, codes.OutOfRange},
	} {
		got, err := one.asked.round(one.least)
		if got != one.want || status.Code(err) != one.code {
			t.Errorf("%+v.round(%d) = %d, %v", one.asked, one.least, got, err)
		}
	}
}

func TestOnlyWhatWasNeverWrittenIsBlank(t *testing.T) {
	zeros := make([]byte, 4096)
	whole := append([]byte("XFSB"), zeros...)
	halfMade := append([]byte("XFSB"), zeros...)
	halfMade[126] = 1
	lateByte := append(append([]byte{}, zeros...), 7)
	for name, one := range map[string]struct {
		beginning []byte
		want      content
	}{
		"zeros":                 {zeros, blank},
		"xfs":                   {whole, xfs},
		"xfs that is half made": {halfMade, blank},
		"somebody's bytes":      {lateByte, foreign},
		"a lone magic":          {[]byte("XFSB"), foreign},
	} {
		if got := recognise(one.beginning); got != one.want {
			t.Errorf("%s: recognise = %v, want %v", name, got, one.want)
		}
	}
}

func TestVolumeIDsOfOthersAreNotOurs(t *testing.T) {
	place, name, err := splitID("my:fs:csi-vol-1")
	if place != "my:fs" || name != "csi-vol-1" || err != nil {
		t.Errorf("splitID = %q, %q, %v", place, name, err)
	}
	for _, id := range []string{"", "dataset", ":csi-vol-1", "myfs:important", "myfs:"} {
		if _, _, err := splitID(id); status.Code(err) != codes.NotFound {
			t.Errorf("splitID(%q) = %v", id, err)
		}
	}
}

func TestEveryEndOfACommandIsSaidInASentence(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	ctx := context.Background()
	for name, one := range map[string]struct {
		ctx       context.Context
		exit      string
		complaint string
		code      codes.Code
	}{
		"late":         {cancelled, "1", "", codes.DeadlineExceeded},
		"no monitor":   {ctx, "1", "timed out", codes.Unavailable},
		"rbd, no one":  {ctx, "110", "rbd: couldn't connect to the cluster!", codes.Unavailable},
		"wrong key":    {ctx, "13", "[errno 13] RADOS permission denied (error connecting to the cluster)", codes.Unauthenticated},
		"missing caps": {ctx, "13", "Error EACCES: access denied", codes.PermissionDenied},
		"new manager":  {ctx, "95", "Error ENOTSUP: Warning: due to ceph-mgr restart, some PG states may not be up to date", codes.Unavailable},
		"missing":      {ctx, "2", "Error ENOENT: FS 'nofs' not found", codes.NotFound},
		"full":         {ctx, "28", "Error ENOSPC: no space", codes.ResourceExhausted},
		"in use":       {ctx, "16", "rbd: error: image still has watchers", codes.FailedPrecondition},
		"anything":     {ctx, "22", "Error EINVAL: no", codes.Internal},
	} {
		ended := exec.Command("sh", "-c", "exit "+one.exit).Run()
		err := toStatus(explain(one.ctx, ended, "csi", "ceph fs", one.complaint))
		if status.Code(err) != one.code || status.Convert(err).Message() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCommandsAreNamedWithoutOptions(t *testing.T) {
	if got := name([]string{"--connect-timeout=10", "fs", "subvolume", "info", "myfs"}); got != "fs subvolume info" {
		t.Errorf("name = %q", got)
	}
}

func TestTheLastLineIsTheProgramsOwnIfItHasOne(t *testing.T) {
	log := "2026-11-30T07:19:30.344+0000 7f18 -1 librbd: image has watchers\n"
	for text, want := range map[string]string{
		"":                           "",
		log:                          strings.TrimSpace(log),
		"one\ntwo\n\n" + log:         "two",
		log + "Error: three\n" + log: "Error: three",
	} {
		if got := lastLine(text); got != want {
			t.Errorf("lastLine(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestASecretNeedsUserAndKey(t *testing.T) {
	for _, secrets := range []map[string]string{nil, {"userID": "a"}, {"adminID": "a", "adminKey": "b"}} {
		if _, err := readCredentials(secrets); status.Code(err) != codes.InvalidArgument {
			t.Errorf("readCredentials(%v) = %v", secrets, err)
		}
	}
	who, err := readCredentials(map[string]string{"userID": "a", "userKey": "b"})
	if who != (credentials{User: "a", Key: "b"}) || err != nil {
		t.Errorf("readCredentials = %v, %v", who, err)
	}
}

func TestAStaticVolumeNamesItsDirectory(t *testing.T) {
	for _, one := range []struct {
		parameters map[string]string
		want       string
		code       codes.Code
	}{
		{map[string]string{"subvolumePath": "/volumes/csi/x/y"}, "/volumes/csi/x/y", codes.OK},
		{map[string]string{"staticVolume": "true", "rootPath": "/volumes/datasets/a"}, "/volumes/datasets/a", codes.OK},
		{map[string]string{"rootPath": "/volumes/datasets/a"}, "", codes.InvalidArgument},
		{map[string]string{"staticVolume": "true", "subvolumePath": "/x"}, "", codes.InvalidArgument},
	} {
		got, err := findRoot(one.parameters)
		if got != one.want || status.Code(err) != one.code {
			t.Errorf("findRoot(%v) = %q, %v", one.parameters, got, err)
		}
	}
}

func TestBlockVolumesHaveOneNodeAndXFS(t *testing.T) {
	blocks := &rbd{}
	for mode, code := range map[csi.VolumeCapability_AccessMode_Mode]codes.Code{
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER: codes.OK,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:  codes.OK,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:   codes.InvalidArgument,
	} {
		if err := blocks.check(makeCapability(mode, "xfs")); status.Code(err) != code {
			t.Errorf("%v: %v", mode, err)
		}
	}
	ext4 := makeCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, "ext4")
	if err := blocks.check(ext4); status.Code(err) != codes.InvalidArgument {
		t.Errorf("ext4: %v", err)
	}
}

func TestAReaderIsOneByAccessModeOrMountOption(t *testing.T) {
	many := makeCapability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, "")
	readers := makeCapability(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, "")
	if isReader(many) || !isReader(readers) {
		t.Error("the access mode is not what counts")
	}
	many.GetMount().MountFlags = []string{"noatime", "ro"}
	if !isReader(many) {
		t.Error("the mount option ro does not count")
	}
}

func makeCapability(mode csi.VolumeCapability_AccessMode_Mode, kind string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: kind}},
	}
}

func TestAnotherPodIsFoundByItsMount(t *testing.T) {
	one, two := "/k/pods/1/volumes/kubernetes.io~csi/pv-a/mount", "/k/pods/2/volumes/kubernetes.io~csi/pv-a/mount"
	mounts := []mountPoint{{path: "/k/pods/1/volume-subpaths/pv-a/lab/0"}, {path: one}, {path: "/k/pods/3/volumes/kubernetes.io~csi/pv-b/mount"}}
	if got := findOther(mounts, one); got != "" {
		t.Errorf("its own mount counts as another's: %q", got)
	}
	if got := findOther(mounts, two); got != one {
		t.Errorf("findOther = %q, want %q", got, one)
	}
}

func TestFilesAreCountedWhereTheyAreBounded(t *testing.T) {
	bounded := makeUsage(&unix.Statfs_t{Frsize: 4096, Blocks: 100, Bfree: 60, Bavail: 50, Files: 10, Ffree: 7})
	want := []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: 409600, Available: 204800, Used: 163840},
		{Unit: csi.VolumeUsage_INODES, Total: 10, Available: 7, Used: 3},
	}
	if !reflect.DeepEqual(bounded, want) {
		t.Errorf("makeUsage = %v, want %v", bounded, want)
	}
	unbounded := makeUsage(&unix.Statfs_t{Frsize: 1, Blocks: 1, Files: 10, Ffree: ^uint64(0)})
	if len(unbounded) != 1 {
		t.Errorf("makeUsage = %v", unbounded)
	}
}

func TestAStageIsRememberedUntilItIsForgotten(t *testing.T) {
	known := stages{directory: filepath.Join(t.TempDir(), "stages")}
	one := &stage{Volume: "myfs:csi-vol-1", Path: "/k/globalmount", Flags: []string{"noatime"}, Credentials: credentials{User: "a", Key: "b"}}
	if err := known.save(one); err != nil {
		t.Fatal(err)
	}
	found, err := known.find(one.Path)
	if err != nil || !reflect.DeepEqual(found, one) {
		t.Errorf("find = %v, %v", found, err)
	}
	if err := errors.Join(known.forget(one), known.forget(one)); err != nil {
		t.Error(err)
	}
	if found, err := known.find(one.Path); found != nil || err != nil {
		t.Errorf("after forget: %v, %v", found, err)
	}
}

func TestAVolumeIsHeldByOneCallAtATime(t *testing.T) {
	driver := &driver{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	release, err := driver.claim(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := driver.claim(ctx, "b"); err != nil {
		t.Errorf("another volume: %v", err)
	}
	time.AfterFunc(10*time.Millisecond, release)
	if _, err := driver.claim(ctx, "a"); err != nil {
		t.Errorf("after release: %v", err)
	}
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := driver.claim(ctx, "a"); status.Code(err) != codes.Aborted {
		t.Errorf("while it is held: %v", err)
	}
}

func TestADeadMountIsToldFromASlowOne(t *testing.T) {
	if !isDead(errors.Join(errors.New("x"), unix.ENOTCONN)) || isDead(syscall.EACCES) {
		t.Error("isDead mixes them up")
	}
}
