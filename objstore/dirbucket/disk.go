package dirbucket

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// disk is every change that an open bucket makes to its directory, and the sync that
// opens it: a test records their order, or makes them fail.
type disk interface {
	// create makes a file that must not exist, for writing.
	create(path string) (file, error)
	// link gives a file a second name; it fails with fs.ErrExist where there is one.
	link(from, to string) error
	// rename moves a file over whatever file has the name.
	rename(from, to string) error
	// unlink removes a file, never a folder.
	unlink(path string) error
	mkdir(path string) error
	// rmdir removes an empty folder, never a file.
	rmdir(path string) error
	// syncDir makes all that was done to a folder's entries before the call durable.
	syncDir(path string) error
	// syncFS makes durable all that was done before the call to the file system that holds path.
	syncFS(path string) error
}

// file is a temporary file on its way to the disk.
type file interface {
	io.WriteCloser
	// Sync makes what was written, and the size, durable.
	Sync() error
}

// osDisk is the operating system's.
type osDisk struct{}

func (osDisk) create(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (osDisk) link(from, to string) error   { return os.Link(from, to) }
func (osDisk) rename(from, to string) error { return os.Rename(from, to) }
func (osDisk) mkdir(path string) error      { return os.Mkdir(path, 0o750) }

func (osDisk) unlink(path string) error {
	return retried("unlink", path, unix.Unlink)
}

func (osDisk) rmdir(path string) error {
	return retried("rmdir", path, unix.Rmdir)
}

// retried runs a system call again when a signal interrupted it.
func retried(op, path string, call func(string) error) error {
	for {
		err := call(path)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: op, Path: path, Err: err}
		}
	}
}

const (
	// A process that is out of file descriptors for a moment must not take that
	// for a disk that cannot sync: opening a folder is tried for 5 s.
	openTries = 250
	openPause = 20 * time.Millisecond
)

func (osDisk) syncDir(path string) error {
	d, err := os.Open(path)
	for try := 1; err != nil && outOfFiles(err) && try < openTries; try++ {
		time.Sleep(openPause)
		d, err = os.Open(path)
	}
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		_ = d.Close() // the failed sync is what counts
		return err
	}
	return d.Close()
}

func (osDisk) syncFS(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return retried("syncfs", path, func(string) error { return unix.Syncfs(int(d.Fd())) })
}

func outOfFiles(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}
