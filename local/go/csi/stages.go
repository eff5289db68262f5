package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
)

// stage is one volume on this node, by the path at which the kubelet wants it staged. It is kept
// on disk, so that a driver that was started again knows what lies behind a mount, and can mount
// anew what has died without the kubelet's secrets.
type stage struct {
	Volume      string            `json:"volume"`
	Path        string            `json:"path"`
	ReadOnly    bool              `json:"readOnly"`
	Flags       []string          `json:"flags"`
	Context     map[string]string `json:"context"`
	Credentials credentials       `json:"credentials"`
}

// key names what belongs to the stage in directories of the driver.
func (s *stage) key() string {
	sum := sha256.Sum256([]byte(s.Path))
	return hex.EncodeToString(sum[:8])
}

// stages are the records of one node, a file each; root alone may read them.
type stages struct {
	directory string
}

func (s *stages) save(one *stage) error {
	if err := os.MkdirAll(s.directory, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(one)
	if err != nil {
		return err
	}
	path := s.file(one)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// find returns the record of the stage at the path, nil when nothing is staged there.
func (s *stages) find(path string) (*stage, error) {
	one := &stage{Path: path}
	text, err := os.ReadFile(s.file(one))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return one, json.Unmarshal(text, one)
}

func (s *stages) forget(one *stage) error {
	return removeIfThere(s.file(one))
}

func (s *stages) file(one *stage) string {
	return filepath.Join(s.directory, one.key()+".json")
}
