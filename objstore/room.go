package objstore

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// ErrNoRoom: what is left of the storage is kept for what frees it. Nothing was written.
var ErrNoRoom = errors.New("storage is nearly full")

// NoRoomError says how much is missing; it is an [ErrNoRoom].
type NoRoomError struct {
	Free, Keep int64 // bytes
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("storage is nearly full: %d bytes are free, and %d are kept for what frees more", e.Free, e.Keep)
}

// Is makes errors.Is(err, ErrNoRoom) hold.
func (e *NoRoomError) Is(target error) bool { return target == ErrNoRoom }

// How long, and for how many admitted bytes, one look at the free space holds.
const (
	roomLookEvery = 50 * time.Millisecond
	roomLookBytes = 1 << 20
)

// Room keeps a reserve of a disk that fills, in steps, so that it can always be emptied again without help from outside: appends
// stop at the reserve, rewrites (which free more than they take, but take it first) at half of it, and what is below
// belongs to deletions and to the metadata that records them. Nobody has to be told when space comes back: every call judges anew.
//
// A nil Room refuses nothing.
type Room struct {
	free    func() (int64, error)
	now     func() time.Time
	reserve int64

	mu       sync.Mutex
	looked   time.Time
	measured bool
	known    int64 // free bytes, less what was admitted since the look
	admitted int64 // since the look
	held     int64 // by rewrites under way
}

// NewRoom returns a Room that keeps reserve bytes of what free tells; 0 or less: nil.
func NewRoom(reserve int64, now func() time.Time, free func() (int64, error)) *Room {
	if reserve <= 0 {
		return nil
	}
	return &Room{free: free, now: now, reserve: reserve}
}

// Append admits an append where its bytes, besides those of waiting ones, leave the whole reserve. waiting are bytes that
// were admitted and may not be on the disk yet.
// Errors: [NoRoomError].
func (r *Room) Append(bytes, waiting int64) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look(bytes)
	if free := r.known - r.held - waiting; free-bytes < r.reserve {
		return &NoRoomError{Free: max(r.known, 0), Keep: r.reserve}
	}
	r.admitted += bytes
	r.known -= bytes
	return nil
}

// Hold admits a rewrite of so many bytes where it leaves half of the reserve, and keeps them for it until release is called.
// Errors: [NoRoomError].
func (r *Room) Hold(bytes int64) (release func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look(roomLookBytes)
	if r.known-r.held-bytes < r.reserve/2 {
		return nil, &NoRoomError{Free: max(r.known-r.held, 0), Keep: r.reserve / 2}
	}
	r.held += bytes
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.held -= bytes
		r.looked = time.Time{} // they are on the disk now, or not
	}, nil
}

// look takes a new measure where the last one is old, or too much was admitted since for it. One that fails leaves
// the last one, and as long as there is none everything is admitted: a file system that cannot tell is no reason to stop.
func (r *Room) look(bytes int64) {
	now := r.now()
	if !r.looked.IsZero() && now.Sub(r.looked) < roomLookEvery && r.admitted+bytes < roomLookBytes {
		return
	}
	free, err := r.free()
	switch {
	case err == nil:
		r.known, r.measured = free, true
	case !r.measured:
		r.known = math.MaxInt64
	}
	r.looked, r.admitted = now, 0
}
