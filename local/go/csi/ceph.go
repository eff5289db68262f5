package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// connectLimit is how long a command seeks a monitor, commandLimit how long it runs at all:
	// a manager or an OSD that is down keeps it waiting for ever.
	connectLimit = 10 * time.Second
	commandLimit = 30 * time.Second
)

// credentials are one Ceph user, as a secret of the storage class names it.
type credentials struct {
	User string `json:"user"`
	Key  string `json:"key"`
}

func readCredentials(secrets map[string]string) (credentials, error) {
	who := credentials{User: secrets["userID"], Key: secrets["userKey"]}
	if who.User == "" || who.Key == "" {
		return who, status.Error(codes.InvalidArgument, "the secret has no userID and userKey")
	}
	return who, nil
}

// ceph is the one cluster that is served, by its command line tools.
type ceph struct {
	conf      string
	clusterID string
	// slots bounds the commands that run at once: each is a process of 0.2 s of CPU time.
	slots chan struct{}
}

// failure is an answer of Ceph's that is not a success: errno and what it said.
type failure struct {
	errno   syscall.Errno
	message string
}

func (f *failure) Error() string { return f.message }

// isErrno tells whether Ceph answered with the error.
func isErrno(err error, errno syscall.Errno) bool {
	var answer *failure
	return errors.As(err, &answer) && answer.errno == errno
}

// checkCluster refuses a class that was written for another cluster.
func (c *ceph) checkCluster(parameters map[string]string) error {
	if id := parameters["clusterID"]; id != c.clusterID {
		return status.Errorf(codes.InvalidArgument, "no Ceph cluster with clusterID %q is known, only %q", id, c.clusterID)
	}
	return nil
}

// command runs `ceph …` as the user and returns its output.
func (c *ceph) command(ctx context.Context, who credentials, words ...string) ([]byte, error) {
	limit := fmt.Sprintf("--connect-timeout=%d", int(connectLimit.Seconds()))
	return c.run(ctx, who, "ceph", append([]string{limit}, words...))
}

// rbd runs `rbd …` as the user and returns its output.
func (c *ceph) rbd(ctx context.Context, who credentials, words ...string) ([]byte, error) {
	limit := fmt.Sprintf("--client_mount_timeout=%d", int(connectLimit.Seconds()))
	return c.run(ctx, who, "rbd", append([]string{limit}, words...))
}

// run returns a failure for what Ceph itself refused and a gRPC status where it did not answer.
func (c *ceph) run(ctx context.Context, who credentials, program string, words []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil, status.Error(codes.DeadlineExceeded, "Ceph is slow: earlier commands still wait for its answer")
	}
	keyFile, err := writeKey(who)
	if err != nil {
		return nil, err
	}
	defer os.Remove(keyFile)
	arguments := append([]string{"--conf", c.conf, "--id", who.User, "--keyfile", keyFile}, words...)
	command := exec.CommandContext(ctx, program, arguments...)
	command.WaitDelay = time.Second
	var output, complaints bytes.Buffer
	command.Stdout, command.Stderr = &output, &complaints
	err = command.Run()
	if err == nil {
		return output.Bytes(), nil
	}
	return nil, explain(ctx, err, who.User, program+" "+name(words), complaints.String())
}

// name returns the words of a command without its options and values.
func name(words []string) string {
	var said []string
	for _, word := range words {
		if !strings.HasPrefix(word, "-") && len(said) < 3 {
			said = append(said, word)
		}
	}
	return strings.Join(said, " ")
}

// explain turns the end of a command into an error that says what stands in the way.
func explain(ctx context.Context, err error, user, command, complaints string) error {
	message := lastLine(complaints)
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return status.Errorf(codes.DeadlineExceeded, "Ceph does not answer: `%s` had no result within %v", command, commandLimit)
	case !errors.As(err, &ended):
		return fmt.Errorf("%s: %w", command, err)
	case strings.Contains(complaints, "timed out"), ended.ExitCode() == int(syscall.ETIMEDOUT):
		return status.Errorf(codes.Unavailable, "Ceph does not answer: no monitor within %v", connectLimit)
	case strings.Contains(complaints, "RADOS permission denied"), strings.Contains(complaints, "handle_auth_bad_method"):
		return status.Errorf(codes.Unauthenticated, "Ceph refuses the key of client.%s", user)
	case ended.ExitCode() == int(syscall.EACCES), ended.ExitCode() == int(syscall.EPERM):
		return status.Errorf(codes.PermissionDenied, "Ceph forbids client.%s `%s`: %s", user, command, message)
	case ended.ExitCode() == int(syscall.EOPNOTSUPP):
		// A manager that has just started has not loaded its modules.
		return status.Errorf(codes.Unavailable, "Ceph's manager is not ready: %s", message)
	}
	return &failure{errno: syscall.Errno(ended.ExitCode()), message: fmt.Sprintf("`%s`: %s", command, message)}
}

// toStatus gives an error that nobody had a better word for its gRPC code.
func toStatus(err error) error {
	if _, known := status.FromError(err); known {
		return err
	}
	var answer *failure
	switch {
	case !errors.As(err, &answer):
		return status.Error(codes.Internal, err.Error())
	case answer.errno == syscall.ENOENT:
		return status.Error(codes.NotFound, answer.message)
	case answer.errno == syscall.ENOSPC, answer.errno == syscall.EDQUOT:
		return status.Error(codes.ResourceExhausted, answer.message)
	case answer.errno == syscall.EBUSY, answer.errno == syscall.ENOTEMPTY:
		return status.Error(codes.FailedPrecondition, answer.message)
	}
	return status.Error(codes.Internal, answer.message)
}

// writeKey puts the key into a file, as everybody may read a command line.
func writeKey(who credentials) (string, error) {
	file, err := os.CreateTemp("", "csi-key-")
	if err != nil {
		return "", err
	}
	defer file.Close()
	_, err = file.WriteString(who.Key)
	return file.Name(), err
}

// logLine begins a line that a library of Ceph's has written beside what the program says.
var logLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT`)

// lastLine returns what a program said last, if it said anything of its own.
func lastLine(text string) string {
	last, found := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && (!logLine.MatchString(line) || !found) {
			last, found = line, !logLine.MatchString(line)
		}
	}
	return last
}
