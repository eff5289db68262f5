package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// answerLimit is how long a file system may take to say how full it is.
const answerLimit = 4 * time.Second

// errDead is of a mount whose FUSE process has gone: nothing will answer there any more.
var errDead = errors.New("the process behind the mount has gone")

// mountPoint is one line of /proc/self/mountinfo.
type mountPoint struct {
	device, root, path, kind string
}

// parseMounts reads the text of a mountinfo file.
func parseMounts(text string) []mountPoint {
	var mounts []mountPoint
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		for i := 6; i+1 < len(fields); i++ {
			// Optional fields end with a dash.
			if fields[i] == "-" {
				mounts = append(mounts, mountPoint{
					device: fields[2], root: unescape.Replace(fields[3]), path: unescape.Replace(fields[4]), kind: fields[i+1],
				})
				break
			}
		}
	}
	return mounts
}

func listMounts() ([]mountPoint, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	return parseMounts(string(text)), err
}

// findMount returns what is mounted on top at the path, nil when nothing is. It does not touch
// the path: that could wait for ever.
func findMount(path string) (*mountPoint, error) {
	mounts, err := listMounts()
	for i := len(mounts) - 1; i >= 0; i-- {
		if mounts[i].path == path {
			return &mounts[i], err
		}
	}
	return nil, err
}

// bind shows the directory at another path too.
func bind(source, target string, readOnly bool) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", source, target, err)
	}
	if !readOnly {
		return nil
	}
	// A bind mount takes other flags only by a second call.
	err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	if err != nil {
		_ = unix.Unmount(target, unix.MNT_DETACH)
		return fmt.Errorf("making %s read-only: %w", target, err)
	}
	return nil
}

// unmount takes away every mount at the path; force detaches what no longer answers.
func unmount(ctx context.Context, path string, force bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	if force {
		flags |= unix.MNT_DETACH
	}
	for {
		mount, err := findMount(path)
		if mount == nil {
			return err
		}
		if err := within(ctx, commandLimit, func() error { return unix.Unmount(path, flags) }); err != nil {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
}

// within returns the result of a call that may never come back; the call itself cannot be ended.
func within(ctx context.Context, limit time.Duration, call func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- call() }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return status.Errorf(codes.DeadlineExceeded, "no answer within %v: Ceph is down or slow", limit)
	}
}

// questions are the statfs calls under way: a file system that does not answer is asked once,
// not once a minute for ever with a thread each.
type questions struct {
	lock  sync.Mutex
	asked map[string]*question
}

type question struct {
	done   chan struct{}
	answer unix.Statfs_t
	err    error
}

// statfs asks the file system at the path how full it is; errDead when nobody is left to answer.
func (q *questions) statfs(ctx context.Context, path string) (*unix.Statfs_t, error) {
	one := q.ask(path)
	err := within(ctx, answerLimit, func() error { <-one.done; return one.err })
	switch {
	case isDead(err):
		return nil, fmt.Errorf("%s: %w", path, errDead)
	case errors.Is(err, unix.ENOENT):
		return nil, status.Errorf(codes.NotFound, "there is nothing at %s", path)
	case status.Code(err) == codes.DeadlineExceeded:
		return nil, status.Error(codes.Unavailable, "the file system does not answer: Ceph is down or slow")
	case err != nil:
		return nil, status.Errorf(codes.Internal, "asking %s how full it is: %v", path, err)
	}
	return &one.answer, nil
}

func (q *questions) ask(path string) *question {
	q.lock.Lock()
	defer q.lock.Unlock()
	if one, waiting := q.asked[path]; waiting {
		return one
	}
	if q.asked == nil {
		q.asked = map[string]*question{}
	}
	one := &question{done: make(chan struct{})}
	q.asked[path] = one
	go func() {
		one.err = unix.Statfs(path, &one.answer)
		q.lock.Lock()
		delete(q.asked, path)
		q.lock.Unlock()
		close(one.done)
	}()
	return one
}

// isDead tells whether the error is one that a mount never recovers from.
func isDead(err error) bool {
	for _, errno := range []unix.Errno{unix.ENOTCONN, unix.ESHUTDOWN, unix.ESTALE, unix.EIO} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// removeIfThere removes a file or an empty directory.
func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
