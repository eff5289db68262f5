// Command volume-helper is what local-path-provisioner runs in a pod to make or remove the
// directory of one volume: volume-helper -p DIRECTORY -a create|delete
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	directory := flag.String("p", "", "the volume's directory")
	action := flag.String("a", "", "create or delete")
	flag.String("s", "", "size in bytes; nothing enforces it")
	flag.String("m", "", "volume mode; always Filesystem")
	flag.Parse()
	if err := run(*action, *directory); err != nil {
		fmt.Fprintln(os.Stderr, "volume-helper:", err)
		os.Exit(1)
	}
}

func run(action, directory string) error {
	switch action {
	case "create":
		if err := os.MkdirAll(directory, 0o777); err != nil {
			return err
		}
		// Any user of a pod may write, whatever the umask says.
		return os.Chmod(directory, 0o777)
	case "delete":
		return os.RemoveAll(directory)
	}
	return fmt.Errorf("no action %q", action)
}
