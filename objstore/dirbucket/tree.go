package dirbucket

import (
	"errors"
	"io/fs"
	"iter"
	"path/filepath"
	"strings"
	"sync"
)

// tree knows the folders of the bucket that this process has used: which ones
// stand, whose entry in their parent is known durable, and which are in use and so
// must not be removed.
//
// Its lock is held across mkdir and rmdir, so that what it knows of a folder is
// about the folder that stands there now and not about one of the same name that
// was removed and made again; never across a sync.
//
// Folders are named relative to the root, whose name is "".
type tree struct {
	disk    disk
	root    string
	mu      sync.Mutex
	folders map[string]*folder
}

type folder struct {
	pins    int  // writes under way in it or beneath it
	made    bool // it stands: it was made or found while it was pinned, and not removed since
	durable bool // its parent was synced since
}

func newTree(d disk, root string) *tree {
	return &tree{disk: d, root: root, folders: make(map[string]*folder)}
}

// path returns where a key or folder is on the disk.
func (t *tree) path(rel string) string {
	if rel == "" {
		return t.root
	}
	return t.root + string(filepath.Separator) + filepath.FromSlash(rel)
}

// parent returns the folder that holds a key or folder.
func parent(rel string) string {
	i := strings.LastIndexByte(rel, '/')
	if i < 0 {
		return ""
	}
	return rel[:i]
}

// steps yields the folders on the way from the root, excluded, to dir, included.
func steps(dir string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := 0; i < len(dir); i++ {
			if dir[i] == '/' && !yield(dir[:i]) {
				return
			}
		}
		if dir != "" {
			yield(dir)
		}
	}
}

// pin keeps dir and the folders above it from being removed until unpin.
func (t *tree) pin(dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for d := range steps(dir) {
		f := t.folders[d]
		if f == nil {
			f = &folder{}
			t.folders[d] = f
		}
		f.pins++
	}
}

// unpin ends a pin. A folder that is not known to stand is forgotten.
func (t *tree) unpin(dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for d := range steps(dir) {
		f := t.folders[d]
		f.pins--
		if f.pins == 0 && !f.made {
			delete(t.folders, d)
		}
	}
}

// make makes what is missing of dir, which must be pinned. Until the folders that
// unsynced returns are synced a crash may take dir away again, with all that is in it.
func (t *tree) make(dir string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for d := range steps(dir) {
		f := t.folders[d]
		if f.made {
			continue
		}
		// A folder that stands already may have been made by a process that died
		// or by hand: found or made, its parent is synced once.
		if err := t.disk.mkdir(t.path(d)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		f.made, f.durable = true, false
	}
	return nil
}

// unsynced returns the folders to sync before all of dir, which must be pinned and
// made, is durable.
func (t *tree) unsynced(dir string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var dirs []string
	for d := range steps(dir) {
		if !t.folders[d].durable {
			dirs = append(dirs, parent(d))
		}
	}
	return dirs
}

// synced notes that what unsynced returned was synced, under the same pin.
func (t *tree) synced(dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for d := range steps(dir) {
		t.folders[d].durable = true
	}
}

// doubt forgets what is known of dir, which must be pinned, after something in it
// went otherwise than it should if dir stood, as when someone removed it by hand:
// the next write makes sure again.
func (t *tree) doubt(dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for d := range steps(dir) {
		f := t.folders[d]
		f.made, f.durable = false, false
	}
}

// prune removes dir and the folders above it as far as they are empty and unused.
// It returns the lowest folder that is left and whether one was removed from it,
// so that it wants a sync. A crash before that sync may bring back empty folders,
// never an object: a folder is pinned from a delete in it until its sync.
func (t *tree) prune(dir string) (left string, removed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for dir != "" {
		if f := t.folders[dir]; f != nil && f.pins > 0 {
			break
		}
		err := t.disk.rmdir(t.path(dir))
		switch {
		case err == nil:
			removed = true
		case errors.Is(err, fs.ErrNotExist):
			// Removed before, perhaps by a process that died before it came to the parent.
		default:
			return dir, removed // not empty, most likely; else it does no harm
		}
		delete(t.folders, dir)
		dir = parent(dir)
	}
	return dir, removed
}
