package dirbucket

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/nova-store/nova/objstore"
)

// Stray is something in the bucket's folder that is no object, and that no listing shows.
type Stray struct {
	Path string // beneath the bucket's folder, of whatever bytes it is made
	Why  string
}

// Strays finds what somebody else put into the bucket's folder, up to most of it: names that are no keys, and what is neither a
// file nor a folder. Of a folder whose name is none, what is in it is not looked at.
func (b *Bucket) Strays(ctx context.Context, most int) ([]Stray, error) {
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.calls.Done()
	var found []Stray
	err := filepath.WalkDir(b.tree.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if noObject(err) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(b.tree.root, path)
		switch {
		case err != nil:
			return err
		case rel == ".", rel == lockFile:
			return nil
		case rel == tempFolder:
			return fs.SkipDir
		case len(found) == most:
			return fs.SkipAll
		}
		if err := objstore.CheckKey(filepath.ToSlash(rel)); err != nil {
			found = append(found, Stray{rel, "no object has such a name"})
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.IsDir() && !d.Type().IsRegular() {
			found = append(found, Stray{rel, fmt.Sprintf("it is no file (%s), and no object", d.Type())})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("dirbucket: looking for strays: %w", err)
	}
	return found, nil
}
