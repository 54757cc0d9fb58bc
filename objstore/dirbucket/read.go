package dirbucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nova-store/nova/objstore"
)

// noObject tells whether an error of the system means that no object has the key:
// nothing is there, or a folder, or a part of the key is a file.
func noObject(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EISDIR)
}

// Get reads a range of an object.
func (b *Bucket) Get(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if off < 0 {
		return nil, fmt.Errorf("dirbucket: get %q: negative offset %d", key, off)
	}
	var data []byte
	err := b.read(ctx, key, func(path string) (err error) {
		data, err = readRange(path, off, n)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dirbucket: get %q: %w", key, err)
	}
	return data, nil
}

// Stat returns an object's size.
func (b *Bucket) Stat(ctx context.Context, key string) (objstore.Info, error) {
	if err := checkKey(key); err != nil {
		return objstore.Info{}, err
	}
	info := objstore.Info{Key: key}
	err := b.read(ctx, key, func(path string) error {
		fi, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !fi.Mode().IsRegular() {
			return objstore.ErrNotFound
		}
		info.Size = fi.Size()
		return nil
	})
	if err != nil {
		return objstore.Info{}, fmt.Errorf("dirbucket: stat %q: %w", key, err)
	}
	return info, nil
}

// read runs f on the key's file. A write of the key that f may have seen in the air
// has ended when read returns.
func (b *Bucket) read(ctx context.Context, key string, f func(path string) error) error {
	if err := b.enter(); err != nil {
		return err
	}
	defer b.calls.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	err := f(b.tree.path(key))
	if noObject(err) {
		err = objstore.ErrNotFound
	}
	if settleErr := b.settle(ctx, key); settleErr != nil {
		return settleErr
	}
	return err
}

// readRange reads n bytes from off, or what there is of them; n < 0: to the end. The
// open file stays whole, whatever happens to its name meanwhile.
func readRange(path string, off, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, objstore.ErrNotFound
	}
	rest := max(fi.Size()-off, 0)
	if n < 0 || n > rest {
		n = rest
	}
	buf := make([]byte, n)
	if n == 0 {
		return buf, nil
	}
	if read, err := f.ReadAt(buf, off); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("file of %d bytes ended at %d: %w", fi.Size(), off+int64(read), io.ErrUnexpectedEOF)
		}
		return nil, err
	}
	return buf, nil
}

// List walks the tree in key order. It reads the names of whole folders, however small
// the limit. Files whose path is no legal key are passed over.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) ([]objstore.Info, error) {
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.calls.Done()
	// Writes in the air may have been done and not synced; the walk below may or may not see them.
	w := walk{ctx: ctx, tree: b.tree, prefix: prefix, after: after, limit: limit}
	err := w.folder("")
	for _, key := range b.keys.busy() {
		if settleErr := b.settle(ctx, key); settleErr != nil {
			err = errors.Join(err, settleErr)
			break
		}
	}
	if err == nil {
		err = b.sound()
	}
	if err != nil {
		return nil, fmt.Errorf("dirbucket: list %q: %w", prefix, err)
	}
	return w.found, nil
}

// walk is one List.
type walk struct {
	ctx           context.Context
	tree          *tree
	prefix, after string
	limit         int
	found         []objstore.Info
}

// folder visits what is in a folder in the order of whole keys. That is not the
// order of names: every key beneath the folder "a" begins with "a/", so it comes after the
// file "a-b" and before the file "a0". A folder therefore sorts as its name and a slash.
func (w *walk) folder(dir string) error {
	if len(w.found) >= w.limit {
		return nil
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(w.tree.path(dir))
	if noObject(err) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	sortName := func(e fs.DirEntry) string {
		if e.IsDir() {
			return e.Name() + "/"
		}
		return e.Name()
	}
	slices.SortFunc(entries, func(x, y fs.DirEntry) int { return cmp.Compare(sortName(x), sortName(y)) })
	for _, e := range entries {
		if len(w.found) >= w.limit {
			return nil
		}
		rel := e.Name()
		if dir != "" {
			rel = dir + "/" + rel
		}
		if checkKey(rel) != nil {
			continue
		}
		if e.IsDir() {
			err = w.subtree(rel)
		} else {
			err = w.file(rel, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// subtree visits a folder if some of its keys may be asked for.
func (w *walk) subtree(dir string) error {
	begin := dir + "/"
	if !strings.HasPrefix(begin, w.prefix) && !strings.HasPrefix(w.prefix, begin) {
		return nil
	}
	if begin < w.after && !strings.HasPrefix(w.after, begin) {
		return nil // all its keys sort before after
	}
	return w.folder(dir)
}

func (w *walk) file(key string, e fs.DirEntry) error {
	if !strings.HasPrefix(key, w.prefix) || key <= w.after || !e.Type().IsRegular() {
		return nil
	}
	fi, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	w.found = append(w.found, objstore.Info{Key: key, Size: fi.Size()})
	return nil
}
