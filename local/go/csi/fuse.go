package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fuseLimit is how long a FUSE process may take to mount.
const fuseLimit = 30 * time.Second

// startFuse runs a FUSE program that stays in the foreground and returns once it has mounted. It
// gets a session of its own: it outlives this process, and so do the mounts of pods.
func startFuse(ctx context.Context, command []string, mountPoint, logFile string) error {
	output, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer output.Close()
	process := exec.Command(command[0], command[1:]...)
	// A file, not a pipe: a pipe would break when this process ends.
	process.Stdout, process.Stderr = output, output
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	process.Dir = "/"
	if err := process.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = process.Wait(); close(ended) }()
	ctx, cancel := context.WithTimeout(ctx, fuseLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return &fuseEnd{program: command[0], said: readLog(logFile)}
		case <-ctx.Done():
			_ = process.Process.Kill()
			return &fuseEnd{program: command[0], said: readLog(logFile), late: true}
		case <-tick.C:
			if mount, err := findMount(mountPoint); err != nil || mount != nil {
				return err
			}
		}
	}
}

// fuseEnd is a FUSE process that ended, or had to be, before it had mounted.
type fuseEnd struct {
	program, said string
	late          bool
}

func (f *fuseEnd) Error() string {
	if f.late {
		return fmt.Sprintf("%s did not mount within %v: %s", f.program, fuseLimit, lastLine(f.said))
	}
	return fmt.Sprintf("%s ended: %s", f.program, lastLine(f.said))
}

// awaitEnd waits until the FUSE process of an unmounted path has written what it held and ended.
// Killing it instead would lose that.
func awaitEnd(ctx context.Context, mountPoint string) error {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	for isServed(mountPoint) {
		select {
		case <-ctx.Done():
			return status.Error(codes.Unavailable, "what was written is not yet in Ceph, which is down or slow")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// isServed tells whether a FUSE process for the mount point runs. It is found by its arguments,
// as one that an earlier life of this process started is; a zombie has none.
func isServed(mountPoint string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if words := strings.Split(string(text), "\x00"); err == nil && len(words) > 1 && strings.HasSuffix(words[0], "-fuse") && words[1] == mountPoint {
			return true
		}
	}
	return false
}

// readLog returns what a program has said. ceph-fuse ends a failed mount with the trace of a crash,
// so the reason is not in the last lines.
func readLog(file string) string {
	const most = 64 << 10
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[:min(most, len(text))])
}
