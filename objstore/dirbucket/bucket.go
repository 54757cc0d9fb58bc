// Package dirbucket keeps a bucket's objects as files of a local directory: the
// object slot/a/1/0 is the file of that name beneath it.
//
// # Durability
//
// A put writes a temporary file, syncs it, gives it the object's name by link(2)
// (if-absent: the system call is what refuses the second writer) or rename(2), and
// then syncs the folder and the parents of those folders whose own entries this
// process has not yet seen synced. What a crash leaves:
//
//   - before the link: a temporary file, removed by the next Open, and perhaps empty folders;
//   - between the link and the end of the syncs: the whole object, or nothing. The
//     next Open syncs the whole file system before it serves, so that which of the two it is is
//     settled before anyone can see it;
//   - after the syncs: the object.
//
// A delete unlinks, syncs each folder in which it looked, removes the folders that
// are empty, and syncs where it removed one. A crash in between leaves the object or
// not, and perhaps empty folders; the delete is not confirmed then, and doing it again
// finishes both.
//
// Nobody sees what a crash could take back: a read that meets a write of the
// same key in the air is answered when that write has ended. After a sync of a
// folder has failed the kernel may have forgotten what it could not write, so that a
// later sync that succeeds proves nothing: the bucket then refuses everything
// (see Options.OnFail) and has to be opened anew.
//
// # One process
//
// The bucket belongs to the one process that holds its LOCK file: two processes
// would not see each other's writes in the air. It is for Linux and a local file system.
//
// Put horizon 0: Put returns when its effect is settled, whatever its context says, and a
// dead process cannot write, so that no put needs a NotAfter. One that is given is looked
// at just before the link, which itself has no deadline.
package dirbucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nova-store/nova/objstore"
)

const (
	tempFolder = ".tmp" // holds files that are not yet objects
	lockFile   = "LOCK"

	// maxParallelSyncs bounds the folders that one call syncs side by side.
	maxParallelSyncs = 16
)

var (
	// ErrClosed: the bucket was closed; no effect.
	ErrClosed = errors.New("dirbucket: closed")
	// ErrFailed: a sync failed earlier, or failed now, in which case the error is
	// objstore.ErrUnknown too. Nothing works any more until the directory is opened anew.
	ErrFailed = errors.New("dirbucket: a sync failed; reopen the directory")
)

// LockedError tells that another process, or another Bucket of this one, holds the
// directory.
type LockedError struct {
	Dir string
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("bucket directory %s is held by another process (its %s file is locked)", e.Dir, lockFile)
}

// Options of Open. The zero value is usable.
type Options struct {
	// Logger gets the few things worth a line. Nil: none.
	Logger *slog.Logger

	// Incarnation names the process in the names of its temporary files: 1 to 64
	// of letters, digits and "._-". Empty: a random one.
	Incarnation string

	// OnFail is called once, with the cause, when a sync has failed and the bucket
	// has stopped. A server ends its process there. It must not call the bucket. Nil: nothing.
	OnFail func(error)
}

// Bucket is an objstore.Bucket on a directory. All methods are safe for concurrent use.
type Bucket struct {
	root        string
	incarnation string
	log         *slog.Logger
	onFail      func(error)
	now         func() time.Time
	disk        disk
	lock        *os.File
	keys        keyLocks
	tree        *tree
	syncs       folderSyncs
	temps       atomic.Uint64 // numbers temporary files

	mu     sync.Mutex
	closed bool
	failed error
	calls  sync.WaitGroup // Add only under mu while not closed
}

var _ objstore.Bucket = (*Bucket)(nil)

var incarnationSyntax = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Open makes the directory if there is none, takes its lock, removes left-over
// temporary files and makes durable whatever an earlier process left in the air.
// A directory that is held gives a *LockedError.
func Open(dir string, opts Options) (*Bucket, error) {
	return open(dir, opts, osDisk{}, time.Now)
}

func open(dir string, opts Options, d disk, now func() time.Time) (*Bucket, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Incarnation == "" {
		opts.Incarnation = fmt.Sprintf("%016x", rand.Uint64())
	}
	if !incarnationSyntax.MatchString(opts.Incarnation) {
		return nil, fmt.Errorf("open bucket directory %s: illegal incarnation %q", dir, opts.Incarnation)
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open bucket directory %s: %w", dir, err)
	}
	if err := os.MkdirAll(filepath.Join(root, tempFolder), 0o750); err != nil {
		return nil, fmt.Errorf("open bucket directory: %w", err)
	}
	lock, err := takeLock(root)
	if err != nil {
		return nil, err
	}
	if err := prepare(root, d, opts.Logger); err != nil {
		_ = lock.Close() // only releases the lock
		return nil, fmt.Errorf("open bucket directory %s: %w", root, err)
	}
	return &Bucket{
		root:        root,
		incarnation: opts.Incarnation,
		log:         opts.Logger,
		onFail:      opts.OnFail,
		now:         now,
		disk:        d,
		lock:        lock,
		tree:        newTree(d, root),
		syncs:       folderSyncs{disk: d},
	}, nil
}

// takeLock takes the lock that the system gives back when the process ends, however it ends.
func takeLock(root string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(root, lockFile), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open bucket directory: %w", err)
	}
	err = retried("flock", f.Name(), func(string) error {
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	})
	if err == nil {
		return f, nil
	}
	_ = f.Close() // it holds nothing
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, &LockedError{Dir: root}
	}
	return nil, fmt.Errorf("lock bucket directory %s: %w", root, err)
}

// prepare settles what earlier processes left. All temporary files are theirs,
// since the lock is held. A link or an unlink that a dead process did not sync is visible
// but not durable: syncfs makes it so, and with it the folders that Open made.
func prepare(root string, d disk, log *slog.Logger) error {
	temp := filepath.Join(root, tempFolder)
	left, err := os.ReadDir(temp)
	if err != nil {
		return err
	}
	for _, e := range left {
		if err := os.Remove(filepath.Join(temp, e.Name())); err != nil {
			return fmt.Errorf("remove left-over: %w", err)
		}
	}
	if len(left) > 0 {
		log.Info("removed left-over temporary files", "dir", root, "files", len(left))
	}
	return d.syncFS(root)
}

// Close waits for the calls in the air, refuses further ones with ErrClosed and
// gives the directory back. Closing again is fine.
func (b *Bucket) Close() error {
	b.mu.Lock()
	again := b.closed
	b.closed = true
	b.mu.Unlock()
	b.calls.Wait()
	if again {
		return nil
	}
	if err := b.lock.Close(); err != nil {
		return fmt.Errorf("close bucket directory %s: %w", b.root, err)
	}
	return nil
}

// enter begins a call; b.calls.Done ends it.
func (b *Bucket) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	if b.failed != nil {
		return fmt.Errorf("%w: %w", ErrFailed, b.failed)
	}
	b.calls.Add(1)
	return nil
}

// sound returns an error once the bucket has failed. What was read or found while
// a write was in the air counts only if the bucket is sound after that write ended.
func (b *Bucket) sound() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed != nil {
		return fmt.Errorf("%w: %w", ErrFailed, b.failed)
	}
	return nil
}

// fail stops the bucket: what this call did may be durable or not, and no later
// sync can tell.
func (b *Bucket) fail(cause error) error {
	b.mu.Lock()
	first := b.failed == nil
	if first {
		b.failed = cause
	}
	b.mu.Unlock()
	if first {
		b.log.Error("bucket stopped: a sync failed", "dir", b.root, "error", cause)
		if b.onFail != nil {
			b.onFail(cause)
		}
	}
	return fmt.Errorf("%w: %w: %w", objstore.ErrUnknown, ErrFailed, cause)
}

// checkKey refuses what objstore.CheckKey does, the bucket's own two names, and
// segments that no file can be named.
func checkKey(key string) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	first, _, _ := strings.Cut(key, "/")
	if first == tempFolder || first == lockFile {
		return fmt.Errorf("%w: %q: %s is the directory bucket's own", objstore.ErrBadKey, key, first)
	}
	return nil
}

// syncFolders makes the entries of folders durable, or stops the bucket. With
// missingOK a folder that is not there has nothing to sync.
func (b *Bucket) syncFolders(dirs []string, missingOK bool) error {
	for chunk := range slices.Chunk(dirs, maxParallelSyncs) {
		errs := make([]error, len(chunk))
		if len(chunk) == 1 {
			errs[0] = b.syncs.sync(b.tree.path(chunk[0]))
		} else {
			var all sync.WaitGroup
			for i, dir := range chunk {
				all.Go(func() { errs[i] = b.syncs.sync(b.tree.path(dir)) })
			}
			all.Wait()
		}
		for _, err := range errs {
			if err != nil && !(missingOK && errors.Is(err, fs.ErrNotExist)) {
				return b.fail(err)
			}
		}
	}
	return nil
}

// prune removes folders that became empty, from dir upward, durably.
func (b *Bucket) prune(dir string) error {
	left, removed := b.tree.prune(dir)
	if !removed {
		return nil
	}
	for {
		err := b.syncs.sync(b.tree.path(left))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, fs.ErrNotExist) && left != "":
			left = parent(left) // removed meanwhile: its own removal covers what was in it
		default:
			return b.fail(err)
		}
	}
}

// settle waits for the writes of a key in the air, so that what was just read of it is
// durable, or was.
func (b *Bucket) settle(ctx context.Context, key string) error {
	if err := b.keys.wait(ctx, key); err != nil {
		return err
	}
	return b.sound()
}
