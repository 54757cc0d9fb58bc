package soak

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/nova-store/nova/verify"
)

// inventory is the objects that the metadata records, and the sizes that it says they have: one, unless records contradict one another.
type inventory map[string][]int64

func (v inventory) add(r verify.Recorded) {
	if !slices.Contains(v[r.Key], r.Size) {
		v[r.Key] = append(v[r.Key], r.Size)
	}
}

// readInventory reads what novad verify --inventory has written.
func readInventory(path string) (_ inventory, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the inventory of the metadata: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	v := inventory{}
	for d := json.NewDecoder(bufio.NewReader(f)); d.More(); {
		var r verify.Recorded
		if err := d.Decode(&r); err != nil {
			return nil, fmt.Errorf("the inventory of the metadata: %w", err)
		}
		v.add(r)
	}
	return v, nil
}

// differences is what a bucket has otherwise than the metadata records, by the keys of its objects, each in words.
type differences struct{ leaked, dangling map[string]string }

func newDifferences() differences {
	return differences{leaked: map[string]string{}, dangling: map[string]string{}}
}

// against compares the objects of a bucket, their sizes by their keys, with the inventory. Leaked are bytes that no record says are there:
// an object that none records, or one that is longer. Dangling are records of bytes that are not there. Nothing waits to be recorded or
// deleted any more where this is asked: that the auditors have drained was seen before.
func (v inventory) against(files map[string]int64, d differences) {
	for _, key := range slices.Sorted(maps.Keys(files)) {
		sizes, recorded := v[key]
		if !recorded {
			d.leaked[key] = fmt.Sprintf("%d bytes that no record names", files[key])
		}
		for _, size := range sizes {
			switch {
			case size == verify.UnknownSize:
				d.dangling[key] = "it is not what was written, so that its size cannot be told"
			case files[key] < size:
				d.dangling[key] = fmt.Sprintf("%d bytes, and %d are recorded", files[key], size)
			case files[key] > size:
				d.leaked[key] = fmt.Sprintf("%d bytes, and %d are recorded", files[key], size)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		if _, there := files[key]; !there {
			d.dangling[key] = fmt.Sprintf("not there, and %d bytes are recorded", v[key])
		}
	}
}

// bucketFiles are the objects of a bucket as files of a folder, their sizes by their keys. The soak looks itself, so that it does not
// rest on the listing of the program that it tries.
func bucketFiles(dir string) (map[string]int64, error) {
	files := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		key, err := filepath.Rel(dir, path)
		if err != nil || key == "LOCK" { // the directory form's own
			return err
		}
		info, err := d.Info()
		if err == nil {
			files[filepath.ToSlash(key)] = info.Size()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking through the bucket: %w", err)
	}
	return files, nil
}
