package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// content is what the beginning of a device shows.
type content int

const (
	blank content = iota
	xfs
	foreign
)

// recognise reads the first bytes of a device. Only one that was never written is blank: a file
// system that is not known is somebody's data.
func recognise(beginning []byte) content {
	// Offset of sb_inprogress in XFS's superblock: a mkfs that was ended half-way left it set.
	const inProgress = 126
	switch {
	case bytes.HasPrefix(beginning, []byte("XFSB")) && len(beginning) > inProgress:
		if beginning[inProgress] != 0 {
			return blank
		}
		return xfs
	case len(bytes.Trim(beginning, "\x00")) == 0:
		return blank
	}
	return foreign
}

// ensureXFS makes a file system on a blank device.
func ensureXFS(ctx context.Context, device string, readOnly bool) error {
	var found content
	err := within(ctx, commandLimit, func() error {
		file, err := os.Open(device)
		if err != nil {
			return err
		}
		defer file.Close()
		beginning := make([]byte, mebibyte)
		// A read that fails must not look like zeros.
		if _, err := io.ReadFull(file, beginning); err != nil {
			return fmt.Errorf("reading %s: %w", device, err)
		}
		found = recognise(beginning)
		return nil
	})
	switch {
	case err != nil:
		return err
	case found == xfs:
		return nil
	case found == foreign:
		return status.Error(codes.FailedPrecondition, "the image holds something that is not an xfs file system; it is left as it is")
	case readOnly:
		return status.Error(codes.FailedPrecondition, "the image is blank and may only be read")
	}
	// As ceph-csi makes it; a new image reads as zeros, so there is nothing to discard.
	return runTool(ctx, "mkfs.xfs", "-q", "-f", "-K", "-m", "reflink=0", device)
}

func mountXFS(ctx context.Context, device string, stage *stage) error {
	// The kernel refuses a second file system of one UUID while a dead mount of it lingers.
	options := append([]string{"nouuid"}, stage.Flags...)
	if stage.ReadOnly {
		options = append(options, "ro")
	}
	if err := runTool(ctx, "mount", "-t", "xfs", "-o", strings.Join(options, ","), device, stage.Path); err != nil {
		return err
	}
	// The kernel keeps a device that is in use, and from now on lets go of it by itself when the
	// last view of its file system has gone, whoever unmounts that.
	return runTool(ctx, "losetup", "--detach", device)
}

func attachLoop(ctx context.Context, file string, readOnly bool) (string, error) {
	words := []string{"--find", "--show", file}
	if readOnly {
		words = append([]string{"--read-only"}, words...)
	}
	if err := runTool(ctx, "losetup", words...); err != nil {
		return "", err
	}
	devices, err := findLoops(file)
	if err != nil || len(devices) == 0 {
		return "", errors.Join(fmt.Errorf("no loop device holds %s", file), err)
	}
	return devices[0], nil
}

// detachLoops lets go of the file and returns once the kernel has: a container that ends may keep
// its view of a file system, and with it the device, for a moment longer.
func detachLoops(ctx context.Context, file string, force bool) error {
	devices, err := findLoops(file)
	if err != nil {
		return err
	}
	for _, device := range devices {
		if err := runTool(ctx, "losetup", "--detach", device); err != nil {
			return err
		}
	}
	if force {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	for {
		devices, err := findLoops(file)
		if err != nil || len(devices) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return status.Errorf(codes.Unavailable, "%s is still in use", devices[0])
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// findLoops returns the loop devices of the file.
func findLoops(file string) ([]string, error) {
	holders, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var devices []string
	for _, holder := range holders {
		// A device that is let go meanwhile has no such file any more.
		text, err := os.ReadFile(holder)
		if err == nil && strings.TrimSuffix(string(text), "\n") == file {
			devices = append(devices, "/dev/"+strings.Split(holder, "/")[3])
		}
	}
	slices.Sort(devices)
	return devices, nil
}

// runTool runs a command of the host; one that waits for a disk cannot be ended, only left.
func runTool(ctx context.Context, program string, words ...string) error {
	var complaints bytes.Buffer
	command := exec.Command(program, words...)
	command.Stderr = &complaints
	err := within(ctx, commandLimit, command.Run)
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return status.Errorf(codes.Internal, "%s: %s", program, lastLine(complaints.String()))
	}
	return err
}
