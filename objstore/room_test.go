package objstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/objstore"
)

// disk is a file system whose free space a test sets.
type disk struct {
	free int64
	err  error
	now  time.Time
}

func (d *disk) room(reserve int64) *objstore.Room {
	d.now = time.Unix(1, 0)
	return objstore.NewRoom(reserve, func() time.Time { return d.now }, func() (int64, error) { return d.free, d.err })
}

func TestRoom(t *testing.T) {
	d := &disk{free: 1 << 20}
	r := d.room(1 << 18)
	require.NoError(t, r.Append(1<<18, 1<<19))
	require.ErrorIs(t, r.Append(1, 1<<19), objstore.ErrNoRoom, "what was admitted a moment ago counts, whether it is on the disk or not")
	d.now = d.now.Add(time.Second)
	require.NoError(t, r.Append(1, 1<<19), "it was looked at again")

	// Between the reserve and half of it rewrites go on, as far as they fit.
	d.free, d.now = 1<<17+1<<16, d.now.Add(time.Second)
	var full *objstore.NoRoomError
	require.ErrorAs(t, r.Append(1, 0), &full)
	require.Equal(t, &objstore.NoRoomError{Free: 1<<17 + 1<<16, Keep: 1 << 18}, full)
	release, err := r.Hold(1 << 15)
	require.NoError(t, err)
	_, err = r.Hold(1<<15 + 1)
	require.ErrorIs(t, err, objstore.ErrNoRoom, "two at once must fit together")
	release()
	again, err := r.Hold(1<<15 + 1)
	require.NoError(t, err)
	again()

	// Space came back: nobody has to say so.
	d.free = 1 << 30
	require.NoError(t, r.Append(1<<20, 0))
}

func TestRoomWithoutALimit(t *testing.T) {
	r := (&disk{}).room(0)
	require.Nil(t, r)
	require.NoError(t, r.Append(1<<40, 0))
	release, err := r.Hold(1 << 40)
	require.NoError(t, err)
	release()
}

// A file system that cannot tell stops nobody.
func TestRoomOfASilentFileSystem(t *testing.T) {
	d := &disk{err: errors.New("no such call")}
	r := d.room(1 << 20)
	require.NoError(t, r.Append(1<<30, 1<<30))
	_, err := r.Hold(1 << 30)
	require.NoError(t, err)
}
