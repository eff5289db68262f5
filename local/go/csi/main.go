// Command csi serves the two CSI drivers that Rook gives a cluster, CephFS and RBD, on a node
// whose kernel has no Ceph client: files come by ceph-fuse, block devices by rbd-fuse and a loop
// device. It answers as identity, controller, node and registrar, as a process of the host.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"path/filepath"
	"syscall"
)

const (
	cephfsDriver = "rook-ceph.cephfs.csi.ceph.com"
	rbdDriver    = "rook-ceph.rbd.csi.ceph.com"
)

func main() {
	log.SetFlags(log.LstdFlags | log.LUTC)
	kubelet := flag.String("kubelet", "/var/lib/kubelet", "the kubelet's root directory")
	state := flag.String("state", "", "directory for what must outlive this process")
	conf := flag.String("conf", "/etc/ceph/ceph.conf", "Ceph's configuration")
	clusterID := flag.String("cluster-id", "rook-ceph", "clusterID of the storage classes that are served")
	nodeName := flag.String("node", "", "the node's name")
	flag.Parse()
	if *state == "" || *nodeName == "" {
		log.Fatal("csi: -state and -node are needed")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ceph := &ceph{conf: *conf, clusterID: *clusterID, slots: make(chan struct{}, 4)}
	files := &cephfs{ceph: ceph, state: filepath.Join(*state, "cephfs")}
	blocks := &rbd{ceph: ceph, state: filepath.Join(*state, "rbd")}
	failed := make(chan error)
	for name, storage := range map[string]backend{cephfsDriver: files, rbdDriver: blocks} {
		driver := &driver{name: name, node: *nodeName, backend: storage}
		driver.stages.directory = filepath.Join(*state, "stages")
		go func() { failed <- driver.serve(ctx, *kubelet) }()
	}
	select {
	case err := <-failed:
		log.Fatalf("csi: %v", err)
	case <-ctx.Done():
		// The FUSE processes and their mounts stay: they are not children to be waited for.
	}
}
