package dirbucket

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// recorder is a disk that does what it is told, writes down what was done in which
// order, and lets a test stop or fail any of it.
type recorder struct {
	disk
	root string
	// before runs before each operation with its name and the path it is about, relative to
	// the root; an error of its is the operation's, which is then not done.
	before func(op, path string) error

	mu  sync.Mutex
	log []event
	led *ledger
}

// event is an operation that was done. A sync has two: when it began and when it ended.
type event struct {
	op, path string
}

func (e event) String() string { return e.op + " " + e.path }

func (r *recorder) rel(path string) string {
	rel, err := filepath.Rel(r.root, path)
	if err != nil {
		panic(err)
	}
	return filepath.ToSlash(rel)
}

// do runs an operation and writes it down once it is done.
func (r *recorder) do(op, path string, f func() error) error {
	rel := r.rel(path)
	if r.before != nil {
		if err := r.before(op, rel); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	r.note(op, rel)
	return nil
}

func (r *recorder) note(op, rel string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, event{op, rel})
	r.led.note(op, rel)
}

func (r *recorder) create(path string) (f file, err error) {
	err = r.do("create", path, func() (err error) { f, err = r.disk.create(path); return err })
	return &recordedFile{f, r, path}, err
}

// link and rename are written down as "from > to", since both names count.
func (r *recorder) link(from, to string) error {
	return r.move("link", from, to, r.disk.link)
}

func (r *recorder) rename(from, to string) error {
	return r.move("rename", from, to, r.disk.rename)
}

func (r *recorder) move(op, from, to string, f func(from, to string) error) error {
	if r.before != nil {
		if err := r.before(op, r.rel(to)); err != nil {
			return err
		}
	}
	if err := f(from, to); err != nil {
		return err
	}
	r.note(op, r.rel(from)+" > "+r.rel(to))
	return nil
}

func (r *recorder) unlink(path string) error {
	return r.do("unlink", path, func() error { return r.disk.unlink(path) })
}

func (r *recorder) mkdir(path string) error {
	return r.do("mkdir", path, func() error { return r.disk.mkdir(path) })
}

func (r *recorder) rmdir(path string) error {
	return r.do("rmdir", path, func() error { return r.disk.rmdir(path) })
}

func (r *recorder) syncDir(path string) error {
	rel := r.rel(path)
	r.mu.Lock()
	began := r.led.beginSync(rel)
	r.mu.Unlock()
	if r.before != nil {
		if err := r.before("syncdir", rel); err != nil {
			return err
		}
	}
	if err := r.disk.syncDir(path); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, event{"syncdir", rel})
	began.end()
	return nil
}

func (r *recorder) syncFS(path string) error {
	return r.do("syncfs", path, func() error { return r.disk.syncFS(path) })
}

type recordedFile struct {
	file
	r    *recorder
	path string
}

func (f *recordedFile) Write(p []byte) (n int, err error) {
	err = f.r.do("write", f.path, func() (err error) { n, err = f.file.Write(p); return err })
	return n, err
}

func (f *recordedFile) Sync() error {
	return f.r.do("sync", f.path, f.file.Sync)
}

func (f *recordedFile) Close() error {
	err := f.r.do("close", f.path, func() error { return nil })
	if closeErr := f.file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// events returns what was done since the last call, one line each. Syncs that
// followed one another are sorted, since they run side by side.
func (r *recorder) events() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, e := range r.log {
		lines = append(lines, e.String())
	}
	r.log = nil
	for i := 0; i < len(lines); i++ {
		j := i
		for j < len(lines) && strings.HasPrefix(lines[j], "syncdir ") {
			j++
		}
		slices.Sort(lines[i:j])
		i = max(i, j-1)
	}
	return lines
}

// openRecorded opens a fresh bucket of incarnation i on a recorder.
func openRecorded(t *testing.T, opts Options, now func() time.Time) (*Bucket, *recorder) {
	t.Helper()
	root := t.TempDir()
	rec := &recorder{disk: osDisk{}, root: root, led: newLedger()}
	if now == nil {
		now = time.Now
	}
	opts.Incarnation = "i"
	b, err := open(root, opts, rec, now)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.Equal(t, []string{"syncfs ."}, rec.events(), "before it serves")
	return b, rec
}

// ledger knows what a power cut may leave, by the promises of POSIX alone: a file's
// bytes are there once it was synced; a change of a folder's entry may be there or not
// until a sync of that folder that began after it has ended.
type ledger struct {
	seq  int
	root *node
}

// node is a file or a folder. It keeps its identity through renames.
type node struct {
	synced  bool              // of a file: its bytes are durable
	entries map[string][]slot // of a folder: what a cut may leave under each name, the newest last
}

// slot is what a name was given at seq. A nil node is none.
type slot struct {
	seq  int
	node *node
}

func newLedger() *ledger {
	temp := &node{entries: map[string][]slot{}}
	return &ledger{root: &node{entries: map[string][]slot{tempFolder: {{0, temp}}}}}
}

// at returns the folder that holds path and the last name of it.
func (l *ledger) at(path string) (*node, string) {
	n, segs := l.root, strings.Split(path, "/")
	for _, seg := range segs[:len(segs)-1] {
		n = n.newest(seg)
	}
	return n, segs[len(segs)-1]
}

func (n *node) newest(name string) *node {
	s := n.entries[name]
	if len(s) == 0 {
		return nil
	}
	return s[len(s)-1].node
}

func (l *ledger) set(path string, to *node) {
	l.seq++
	dir, name := l.at(path)
	if len(dir.entries[name]) == 0 {
		dir.entries[name] = []slot{{0, nil}}
	}
	dir.entries[name] = append(dir.entries[name], slot{l.seq, to})
}

func (l *ledger) get(path string) *node {
	dir, name := l.at(path)
	return dir.newest(name)
}

func (l *ledger) note(op, path string) {
	from, to, _ := strings.Cut(path, " > ")
	switch op {
	case "create":
		l.set(path, &node{})
	case "write", "close", "syncfs":
	case "sync":
		l.get(path).synced = true
	case "mkdir":
		l.set(path, &node{entries: map[string][]slot{}})
	case "link":
		l.set(to, l.get(from))
	case "rename":
		l.set(to, l.get(from))
		l.set(from, nil)
	case "unlink", "rmdir":
		l.set(path, nil)
	default:
		panic("unknown operation " + op)
	}
}

type syncing struct {
	dir *node
	seq int
}

func (l *ledger) beginSync(path string) syncing {
	if path == "." {
		return syncing{l.root, l.seq}
	}
	return syncing{l.get(path), l.seq}
}

// end forgets of each name what it was given before what it had when the sync began.
func (s syncing) end() {
	for name, slots := range s.dir.entries {
		first := 0
		for i, sl := range slots {
			if sl.seq <= s.seq {
				first = i
			}
		}
		s.dir.entries[name] = slots[first:]
	}
}

// outcomes returns what a power cut now may leave of an object, sorted: "absent", "torn", or
// "file" with the identity of its bytes.
func (l *ledger) outcomes(key string) []string {
	set := map[string]bool{}
	var walk func(n *node, segs []string)
	walk = func(n *node, segs []string) {
		switch {
		case n == nil:
			set["absent"] = true
		case len(segs) > 0:
			slots := n.entries[segs[0]]
			if len(slots) == 0 {
				set["absent"] = true
			}
			for _, s := range slots {
				walk(s.node, segs[1:])
			}
		case n.synced:
			set[fmt.Sprintf("file %p", n)] = true
		default:
			set["torn"] = true
		}
	}
	walk(l.root, strings.Split(key, "/"))
	var all []string
	for o := range set {
		all = append(all, o)
	}
	slices.Sort(all)
	return all
}

// afterCut returns the one thing that a power cut may leave of an object, "file" or
// "absent", or what else there may be.
func (r *recorder) afterCut(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.led.outcomes(key)
	if len(o) == 1 {
		kind, _, _ := strings.Cut(o[0], " ")
		return kind
	}
	return "any of " + strings.Join(o, ", ")
}
