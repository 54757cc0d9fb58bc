package buckettest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/objstore"
)

// brief describes a body for a failure's message.
func brief(body string) string {
	if len(body) <= 40 {
		return fmt.Sprintf("%q", body)
	}
	return fmt.Sprintf("%q… (%d bytes)", body[:40], len(body))
}

func testPutIfAbsent(s *suite) {
	require.NoError(s.t, s.putIfAbsent("slot/a/1/0", "first"))
	s.requireBody("slot/a/1/0", "first")
	require.ErrorIs(s.t, s.putIfAbsent("slot/a/1/0", "second"), objstore.ErrExists)
	require.ErrorIs(s.t, s.putIfAbsent("slot/a/1/0", "first"), objstore.ErrExists)
	s.requireBody("slot/a/1/0", "first")
	require.NoError(s.t, s.putIfAbsent("slot/a/1/1", "next"))
	s.requireBody("slot/a/1/0", "first")
}

func testPutOverwrites(s *suite) {
	for _, body := range []string{"first", "a longer second", "3rd", ""} {
		require.NoError(s.t, s.put("probe/a", body))
		s.requireBody("probe/a", body)
	}
	require.ErrorIs(s.t, s.putIfAbsent("probe/a", "x"), objstore.ErrExists)
	s.requireBody("probe/a", "")
}

func testPutAfterDelete(s *suite) {
	for _, ifAbsent := range []bool{true, false, true} {
		body := fmt.Sprintf("if absent: %v", ifAbsent)
		require.NoError(s.t, s.putWith("bundle/a/1/0-x", []byte(body), s.options(ifAbsent)))
		s.requireBody("bundle/a/1/0-x", body)
		s.requireGone("bundle/a/1/0-x")
		s.requireAbsent("bundle/a/1/0-x")
	}
}

const racers = 32

// race has racers put different bodies of one key and checks that exactly one won,
// that the others were told so, and that its bytes are what is read.
func (s *suite) race(key string) {
	bodies := make([]string, racers)
	errs := make([]error, racers)
	opt := s.options(true)
	for i := range bodies {
		bodies[i] = strings.Repeat(fmt.Sprintf("%02d,", i), 1+i*50)
	}
	s.Parallel(s.t, s.b, racers, func(ctx context.Context, i int) {
		errs[i] = s.b.Put(ctx, key, []byte(bodies[i]), opt)
	})
	winner := -1
	for i, err := range errs {
		if err != nil {
			require.ErrorIs(s.t, err, objstore.ErrExists)
			continue
		}
		require.Equal(s.t, -1, winner, "writers %d and %d both won", winner, i)
		winner = i
	}
	require.GreaterOrEqual(s.t, winner, 0, "nobody won")
	s.requireBody(key, bodies[winner])
}

func testRaceIfAbsent(s *suite) {
	for i := range 4 {
		s.race(fmt.Sprintf("slot/a/1/%d", i))
		s.race(fmt.Sprintf("slot/a/%d/0", i+2)) // where the folder is missing too
	}
}

func testRaceAfterDelete(s *suite) {
	for range 3 {
		s.race("slot/a/1/0")
		s.requireGone("slot/a/1/0")
	}
	s.requireAbsent("slot/a/1/0")
}

// testWholeOrNothing reads while others overwrite, delete and put anew: what is
// read is one of the bodies, whole.
func testWholeOrNothing(s *suite) {
	const tasks, rounds, key = 8, 10, "settled/x"
	letters := "abcdefgh"
	size := func(i int) int { return 20000 + i*7000 }
	opt := s.options(false)
	var torn [tasks]string
	var failed [tasks]error
	s.Parallel(s.t, s.b, tasks, func(ctx context.Context, i int) {
		for range rounds {
			switch {
			case i == 0:
				if errs := s.b.Delete(ctx, []string{key}); errs[0] != nil {
					failed[i] = errs[0]
				}
			case i < 4:
				body := strings.Repeat(letters[i:i+1], size(i))
				if err := s.b.Put(ctx, key, []byte(body), opt); err != nil {
					failed[i] = err
				}
			default:
				got, err := s.b.Get(ctx, key, 0, -1)
				if err != nil {
					if !isNotFound(err) {
						failed[i] = err
					}
					continue
				}
				if !wholeBody(string(got), letters, size) {
					torn[i] = brief(string(got))
				}
			}
		}
	})
	for i := range tasks {
		require.NoError(s.t, failed[i])
		require.Empty(s.t, torn[i], "a body that nobody put")
	}
}

func wholeBody(got, letters string, size func(int) int) bool {
	if got == "" {
		return false
	}
	i := strings.IndexByte(letters, got[0])
	return i >= 0 && len(got) == size(i) && strings.Count(got, got[:1]) == len(got)
}

func testSize(s *suite) {
	largest := make([]byte, objstore.MaxObjectBytes)
	copy(largest[len(largest)-4:], "last")
	require.NoError(s.t, s.putWith("settled/largest", largest, s.options(true)))
	info, err := s.stat("settled/largest")
	require.NoError(s.t, err)
	require.EqualValues(s.t, objstore.MaxObjectBytes, info.Size)
	tail, err := s.getRange("settled/largest", objstore.MaxObjectBytes-6, 100)
	require.NoError(s.t, err)
	require.Equal(s.t, "\x00\x00last", string(tail))

	tooLarge := make([]byte, objstore.MaxObjectBytes+1)
	for _, ifAbsent := range []bool{true, false} {
		require.ErrorIs(s.t, s.putWith("settled/more", tooLarge, s.options(ifAbsent)), objstore.ErrTooLarge)
		s.requireAbsent("settled/more")
	}
	require.NoError(s.t, s.put("settled/small", "small"))
	require.ErrorIs(s.t, s.putWith("settled/small", tooLarge, s.options(false)), objstore.ErrTooLarge)
	s.requireBody("settled/small", "small")
}

func testNotAfter(s *suite) {
	in := func(d time.Duration, ifAbsent bool) objstore.PutOptions {
		return objstore.PutOptions{IfAbsent: ifAbsent, NotAfter: s.Now().Add(d)}
	}
	for _, ifAbsent := range []bool{true, false} {
		require.ErrorIs(s.t, s.putWith("slot/a/1/0", []byte("late"), in(-time.Hour, ifAbsent)), objstore.ErrExpired)
		s.requireAbsent("slot/a/1/0")
	}
	require.NoError(s.t, s.putWith("slot/a/1/0", []byte("in time"), in(putTime, true)))
	require.ErrorIs(s.t, s.putWith("slot/a/1/0", []byte("second"), in(putTime, true)), objstore.ErrExists)
	require.ErrorIs(s.t, s.putWith("slot/a/1/0", []byte("late"), in(-time.Hour, false)), objstore.ErrExpired)
	s.requireBody("slot/a/1/0", "in time")
	require.NoError(s.t, s.putWith("slot/a/1/0", []byte("over"), in(putTime, false)))
	s.requireBody("slot/a/1/0", "over")
}

// testLostPut loses a put on its way: nothing tells that from one that will land yet, so it is unknown, and nothing else.
// In particular it is not "not found", which is what reading it back meets.
func testLostPut(s *suite) {
	if s.LosePut == nil {
		return
	}
	for _, ifAbsent := range []bool{true, false} {
		key := fmt.Sprintf("slot/a/1/%v", ifAbsent)
		s.LosePut(s.b)
		err := s.putWith(key, []byte("x"), s.options(ifAbsent))
		require.Equal(s.t, []error{objstore.ErrUnknown}, Matches(err), "%v", err)
		s.requireAbsent(key)
		require.NoError(s.t, s.putWith(key, []byte("x"), s.options(ifAbsent)))
		s.requireBody(key, "x")
	}
	s.LosePut(s.b)
	// A bucket that reads back finds another's object, and may say so: this put is without an effect for good.
	err := s.putIfAbsent("slot/a/1/true", "y")
	require.Len(s.t, Matches(err), 1, "%v", err)
	if !errors.Is(err, objstore.ErrExists) {
		require.ErrorIs(s.t, err, objstore.ErrUnknown)
	}
	s.requireBody("slot/a/1/true", "x")
}

// testDurable crashes after each confirmed effect.
func testDurable(s *suite) {
	require.NoError(s.t, s.putIfAbsent("slot/a/1/0", "zero"))
	require.NoError(s.t, s.putIfAbsent("slot/a/1/1", "one"))
	require.NoError(s.t, s.put("probe/x", "old"))
	s.reopen()
	s.requireBody("slot/a/1/0", "zero")
	s.requireBody("slot/a/1/1", "one")
	s.requireBody("probe/x", "old")
	require.ErrorIs(s.t, s.putIfAbsent("slot/a/1/0", "again"), objstore.ErrExists)
	s.requireGone("slot/a/1/0", "slot/a/1/1")
	require.NoError(s.t, s.put("probe/x", "new"))
	s.reopen()
	s.requireAbsent("slot/a/1/0")
	s.requireAbsent("slot/a/1/1")
	s.requireBody("probe/x", "new")
	require.NoError(s.t, s.putIfAbsent("slot/a/1/0", "anew"))
	s.reopen()
	s.requireBody("slot/a/1/0", "anew")
}
