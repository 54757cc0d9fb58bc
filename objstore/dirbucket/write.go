package dirbucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nova-store/nova/objstore"
)

// Put writes an object. Its effect is settled when it returns: an error that is not
// objstore.ErrUnknown means that there is none and will be none. A context that ends
// before the link ends the put without an effect; after it, it is not looked at.
func (b *Bucket) Put(ctx context.Context, key string, body []byte, opt objstore.PutOptions) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(body) > objstore.MaxObjectBytes {
		return fmt.Errorf("dirbucket: put %q: %w: %d bytes", key, objstore.ErrTooLarge, len(body))
	}
	if err := b.enter(); err != nil {
		return err
	}
	defer b.calls.Done()
	if err := b.keys.lock(ctx, key); err != nil {
		return fmt.Errorf("dirbucket: put %q: %w", key, err)
	}
	defer b.keys.unlock(key)
	if err := b.put(ctx, key, body, opt); err != nil {
		return fmt.Errorf("dirbucket: put %q: %w", key, err)
	}
	return nil
}

// admit refuses a put that may not have its effect any more.
func (b *Bucket) admit(ctx context.Context, opt objstore.PutOptions) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !opt.NotAfter.IsZero() && b.now().After(opt.NotAfter) {
		return objstore.ErrExpired
	}
	// The key's last write may have failed, and its object be there but not durable.
	return b.sound()
}

// put is Put under the key's lock.
func (b *Bucket) put(ctx context.Context, key string, body []byte, opt objstore.PutOptions) error {
	if err := b.admit(ctx, opt); err != nil {
		return err
	}
	temp := filepath.Join(b.root, tempFolder, fmt.Sprintf("%s-%d", b.incarnation, b.temps.Add(1)))
	if err := b.writeTemp(temp, body); err != nil {
		b.removeTemp(temp)
		return err
	}

	dir := parent(key)
	b.tree.pin(dir)
	err := b.publish(ctx, temp, key, opt)
	b.tree.unpin(dir)

	if err != nil || opt.IfAbsent {
		b.removeTemp(temp) // a rename that succeeded has moved it
	}
	if err == nil || errors.Is(err, objstore.ErrUnknown) || errors.Is(err, objstore.ErrExists) {
		return err
	}
	// The folders may have been made for this put alone.
	return errors.Join(err, b.prune(dir))
}

// publish gives the synced temporary file the key's name and makes that durable. The
// key's folder is pinned.
func (b *Bucket) publish(ctx context.Context, temp, key string, opt objstore.PutOptions) error {
	dir, path := parent(key), b.tree.path(key)
	if err := b.tree.make(dir); err != nil {
		b.tree.doubt(dir)
		return err
	}
	if err := b.admit(ctx, opt); err != nil {
		return err
	}
	var err error
	if opt.IfAbsent {
		err = b.disk.link(temp, path)
	} else {
		err = b.disk.rename(temp, path)
	}
	exists := opt.IfAbsent && errors.Is(err, fs.ErrExist)
	if exists {
		if fi, statErr := os.Lstat(path); statErr != nil || !fi.Mode().IsRegular() {
			return errors.Join(errors.New("something that is no object stands at the key"), err, statErr)
		}
	} else if err != nil {
		b.tree.doubt(dir)
		return err
	}

	// The order of these syncs does not matter: the object is confirmed after all.
	dirs := append(b.tree.unsynced(dir), dir)
	if err := b.syncFolders(dirs, false); err != nil {
		return err
	}
	b.tree.synced(dir)
	if exists {
		return objstore.ErrExists
	}
	return nil
}

// syncEvery is how many bytes are written between two syncs of a file. A file system with a journal
// makes other syncs wait for what is dirty, so a large object in one piece would hold up every append beside it.
const syncEvery = 1 << 20

// writeTemp writes a whole file and syncs it. If a sync fails the put has no effect and the
// bucket goes on: the file is never linked, and the next try writes another one.
func (b *Bucket) writeTemp(temp string, body []byte) error {
	f, err := b.disk.create(temp)
	if err != nil {
		return err
	}
	for more := true; more && err == nil; more = len(body) > 0 {
		part := body[:min(len(body), syncEvery)]
		body = body[len(part):]
		if _, err = f.Write(part); err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}

// removeTemp removes a temporary file. That it stays costs room until the next start, nothing else.
func (b *Bucket) removeTemp(temp string) {
	if err := b.disk.unlink(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.log.Warn("temporary file not removed", "file", temp, "error", err)
	}
}

// Delete removes objects. Once begun it goes on to its end, whatever its context
// says. A key whose folder could not be synced gives objstore.ErrUnknown.
func (b *Bucket) Delete(ctx context.Context, keys []string) []error {
	errs := make([]error, len(keys))
	if len(keys) > objstore.MaxDeleteKeys {
		return fill(errs, fmt.Errorf("dirbucket: delete of %d keys: at most %d at a time", len(keys), objstore.MaxDeleteKeys))
	}
	if err := b.enter(); err != nil {
		return fill(errs, err)
	}
	defer b.calls.Done()

	legal := make([]string, 0, len(keys))
	for i, key := range keys {
		if errs[i] = checkKey(key); errs[i] == nil {
			legal = append(legal, key)
		}
	}
	slices.Sort(legal)
	legal = slices.Compact(legal)
	result := b.delete(ctx, legal)
	for i, key := range keys {
		if errs[i] != nil {
			continue
		}
		if err := result(key); err != nil {
			errs[i] = fmt.Errorf("dirbucket: delete %q: %w", key, err)
		}
	}
	return errs
}

func fill(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// delete removes the objects of distinct legal keys in order and returns what
// became of each.
func (b *Bucket) delete(ctx context.Context, keys []string) func(key string) error {
	all := func(err error) func(string) error { return func(string) error { return err } }

	// In one order, so that two batches never wait for each other's keys.
	for i, key := range keys {
		if err := b.keys.lock(ctx, key); err != nil {
			for _, held := range keys[:i] {
				b.keys.unlock(held)
			}
			return all(err)
		}
	}
	defer func() {
		for _, key := range keys {
			b.keys.unlock(key)
		}
	}()
	if err := b.sound(); err != nil {
		return all(err)
	}

	dirs := make([]string, 0, len(keys))
	for _, key := range keys {
		dirs = append(dirs, parent(key))
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	for _, dir := range dirs {
		b.tree.pin(dir)
	}
	failed := make(map[string]error)
	for _, key := range keys {
		if err := b.disk.unlink(b.tree.path(key)); err != nil && !noObject(err) {
			failed[key] = err
		}
	}
	err := b.syncFolders(dirs, true)
	for _, dir := range dirs {
		b.tree.unpin(dir)
	}
	if err != nil {
		return all(err)
	}
	for _, dir := range dirs {
		if err := b.prune(dir); err != nil {
			return all(err)
		}
	}
	return func(key string) error { return failed[key] }
}
