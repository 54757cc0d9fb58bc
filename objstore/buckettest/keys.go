package buckettest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/objstore"
)

const (
	// legalBytes are all that a key's segment may hold.
	legalBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-~"

	// maxKey is the length of the longest key. A segment is kept below what file systems
	// allow a name.
	maxKey     = 512
	maxSegment = 250
)

// longestKey returns a key of n bytes.
func longestKey(n int) string {
	var b strings.Builder
	for i := range n {
		if i%maxSegment == maxSegment-1 && i != n-1 {
			b.WriteByte('/')
		} else {
			b.WriteByte(legalBytes[i%len(legalBytes)])
		}
	}
	return b.String()
}

func legalKeys() []string {
	keys := []string{
		legalBytes,
		"x/" + legalBytes + "/" + legalBytes,
		"...", "....", "d/.../x", ".hidden", "d/.hidden", "d/..x", "d/x..", "d/.x", "d/x.",
		"-", "--", "d/-rf", "~", "~root", "d/~", "_", "d/_",
		"case/Key", "case/key", "CASE/key",
		"settled/01J0000000000000000000000A", "slot/a/00000001/00000000", "bundle/a/1/0-ffff", "probe/star-1",
		longestKey(maxKey), longestKey(maxKey - 1),
	}
	for i := range len(legalBytes) {
		if c := legalBytes[i : i+1]; c != "." {
			keys = append(keys, "one/"+c)
		}
	}
	return keys
}

func testLegalKeys(s *suite) {
	keys := legalKeys()
	for i, key := range keys {
		require.NoError(s.t, s.putIfAbsent(key, fmt.Sprint("body of ", i)), "%q", key)
	}
	s.reopen()
	for i, key := range keys {
		s.requireBody(key, fmt.Sprint("body of ", i))
		require.ErrorIs(s.t, s.putIfAbsent(key, "x"), objstore.ErrExists, "%q", key)
	}
	infos, err := s.list("", "", len(keys)+1)
	require.NoError(s.t, err)
	sorted := slices.Sorted(slices.Values(keys))
	require.Equal(s.t, sorted, keysOf(infos))
	s.requireGone(keys...)
	for _, key := range keys {
		s.requireAbsent(key)
	}
}

func testIllegalKeys(s *suite) {
	require.NoError(s.t, s.put("a/b", "kept"))
	illegal := []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "a/./b", "./a",
		"a b", "a!b", "a\\b", "a:b", "a\x00b", "a\nb", "a*", "a%2fb", "é", "a\xff", "+", "a?", "#",
		longestKey(maxKey + 1), strings.Repeat("a/", 300) + "b",
	}
	for _, key := range illegal {
		for _, ifAbsent := range []bool{true, false} {
			require.ErrorIs(s.t, s.putWith(key, []byte("x"), s.options(ifAbsent)), objstore.ErrBadKey, "put %q", key)
		}
		_, err := s.getRange(key, 0, -1)
		require.ErrorIs(s.t, err, objstore.ErrBadKey, "get %q", key)
		_, err = s.stat(key)
		require.ErrorIs(s.t, err, objstore.ErrBadKey, "stat %q", key)
		errs := s.delete(key)
		require.Len(s.t, errs, 1)
		require.ErrorIs(s.t, errs[0], objstore.ErrBadKey, "delete %q", key)
	}
	infos, err := s.list("", "", 10)
	require.NoError(s.t, err)
	require.Equal(s.t, []objstore.Info{{Key: "a/b", Size: 4}}, infos)
	s.requireBody("a/b", "kept")
}

func testDelete(s *suite) {
	require.Empty(s.t, s.delete())
	for i := range 6 {
		require.NoError(s.t, s.put(fmt.Sprintf("slot/a/1/%d", i), "x"))
	}
	require.NoError(s.t, s.put("settled/a", "x"))
	// Present, missing, of a missing folder, twice, in no order.
	s.requireGone("slot/a/1/3", "slot/a/1/99", "slot/zz/1/0", "settled/a", "slot/a/1/1", "slot/a/1/3", "absent")
	for _, key := range []string{"slot/a/1/3", "slot/a/1/1", "settled/a"} {
		s.requireAbsent(key)
	}
	for _, key := range []string{"slot/a/1/0", "slot/a/1/2", "slot/a/1/4", "slot/a/1/5"} {
		s.requireBody(key, "x")
	}
	// Each key has its own answer, in its place.
	errs := s.delete("slot/a/1/0", "no good", "slot/a/1/2", "", "slot/a/1/98")
	require.Len(s.t, errs, 5)
	for i, bad := range []bool{false, true, false, true, false} {
		if bad {
			require.ErrorIs(s.t, errs[i], objstore.ErrBadKey)
		} else {
			require.NoError(s.t, errs[i])
		}
	}
	s.requireAbsent("slot/a/1/0")
	s.requireAbsent("slot/a/1/2")
	// Again: gone is gone.
	s.requireGone("slot/a/1/0", "slot/a/1/2")
	s.requireBody("slot/a/1/4", "x")
	s.requireGone("slot/a/1/4", "slot/a/1/5")
	infos, err := s.list("", "", 10)
	require.NoError(s.t, err)
	require.Empty(s.t, infos)
}

func testDeleteLimit(s *suite) {
	keys := make([]string, objstore.MaxDeleteKeys+1)
	for i := range keys {
		keys[i] = fmt.Sprintf("slot/a/1/%04d", i)
	}
	there := []string{keys[0], keys[1], keys[500], keys[objstore.MaxDeleteKeys-1], keys[objstore.MaxDeleteKeys]}
	for _, key := range there {
		require.NoError(s.t, s.put(key, "x"))
	}
	errs := s.delete(keys...)
	require.Len(s.t, errs, len(keys))
	for _, err := range errs {
		require.Error(s.t, err)
	}
	for _, key := range there {
		s.requireBody(key, "x")
	}
	s.requireGone(keys[:objstore.MaxDeleteKeys]...)
	for _, key := range there[:len(there)-1] {
		s.requireAbsent(key)
	}
	s.requireBody(keys[objstore.MaxDeleteKeys], "x")
}
