package pebblestore

import (
	"fmt"

	"github.com/nova-store/nova/metastore"
)

// LockedError: the directory is in use, by another process or by another Store of
// this one. Two at once would destroy each other's data.
type LockedError struct {
	Dir string
	Err error
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s is in use by another process (%v)", e.Dir, e.Err)
}

func (e *LockedError) Unwrap() error { return e.Err }

// FormatError: the directory holds something, but not this package's format.
type FormatError struct {
	Dir string
	// Found says what is there, Want what this version reads.
	Found, Want string
	// Later: a later version of this package or of Pebble wrote it, which alone can read it.
	Later bool
}

func (e *FormatError) Error() string {
	text := fmt.Sprintf("%s holds %s; this version reads %s", e.Dir, e.Found, e.Want)
	if e.Later {
		text += ": upgrade novad"
	}
	return text
}

// FullError: too little disk space is free for this commit. Nothing happened; it
// may be tried again once there is more. It is a metastore.ErrUnavailable.
type FullError struct {
	Dir string
	// Free and Reserve are bytes.
	Free, Reserve uint64
}

func (e *FullError) Error() string {
	return fmt.Sprintf("disk of %s is nearly full: %d bytes free, %d must stay free", e.Dir, e.Free, e.Reserve)
}

func (e *FullError) Unwrap() error { return metastore.ErrUnavailable }
