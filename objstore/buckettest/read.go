package buckettest

import (
	"errors"
	"math"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/objstore"
)

func isNotFound(err error) bool { return errors.Is(err, objstore.ErrNotFound) }

// cut is what Get of a range must give.
func cut(body string, off, n int64) string {
	if off >= int64(len(body)) {
		return ""
	}
	body = body[off:]
	if n >= 0 && n < int64(len(body)) {
		body = body[:n]
	}
	return body
}

func testRanges(s *suite) {
	body := "0123456789"
	require.NoError(s.t, s.putIfAbsent("settled/r", body))
	for _, off := range []int64{0, 1, 5, 9, 10, 11, 1000, math.MaxInt64} {
		for _, n := range []int64{-1, math.MinInt64, 0, 1, 4, 5, 9, 10, 11, 1000, math.MaxInt64} {
			got, err := s.getRange("settled/r", off, n)
			require.NoError(s.t, err, "off %d, n %d", off, n)
			require.Equal(s.t, cut(body, off, n), string(got), "off %d, n %d", off, n)
		}
	}
	// A range out of the middle of something larger than any buffer.
	large := strings.Repeat("0123456789abcdef", 1<<16)
	require.NoError(s.t, s.putIfAbsent("settled/large", large))
	for _, r := range [][2]int64{{0, 1 << 20}, {12345, 100000}, {1<<20 - 10, 100}, {1 << 20, 5}} {
		got, err := s.getRange("settled/large", r[0], r[1])
		require.NoError(s.t, err)
		require.True(s.t, cut(large, r[0], r[1]) == string(got), "off %d, n %d: %s", r[0], r[1], brief(string(got)))
	}
}

func testEmptyObject(s *suite) {
	require.NoError(s.t, s.putWith("settled/e", nil, s.options(true)))
	s.requireBody("settled/e", "")
	for _, off := range []int64{0, 1} {
		for _, n := range []int64{-1, 0, 1} {
			got, err := s.getRange("settled/e", off, n)
			require.NoError(s.t, err)
			require.Empty(s.t, got)
		}
	}
	require.ErrorIs(s.t, s.putIfAbsent("settled/e", "x"), objstore.ErrExists)
	infos, err := s.list("", "", 10)
	require.NoError(s.t, err)
	require.Equal(s.t, []objstore.Info{{Key: "settled/e"}}, infos)
	s.requireGone("settled/e")
	s.requireAbsent("settled/e")
}

func testNegativeOffset(s *suite) {
	require.NoError(s.t, s.put("settled/n", "abc"))
	for _, off := range []int64{-1, math.MinInt64} {
		got, err := s.getRange("settled/n", off, 1)
		require.Error(s.t, err)
		require.Empty(s.t, got)
	}
}

func testStat(s *suite) {
	for _, size := range []int{0, 1, 1000, 100_000} {
		require.NoError(s.t, s.put("settled/s", strings.Repeat("s", size)))
		info, err := s.stat("settled/s")
		require.NoError(s.t, err)
		require.Equal(s.t, objstore.Info{Key: "settled/s", Size: int64(size)}, info)
	}
}

func testNotFound(s *suite) {
	require.NoError(s.t, s.put("slot/a/1/0", "there"))
	for _, key := range []string{"absent", "slot/a/1/1", "slot/a/2/0", "slot/b/1/0", "slott"} {
		s.requireAbsent(key)
		for _, n := range []int64{0, 1} {
			_, err := s.getRange(key, 5, n)
			require.ErrorIs(s.t, err, objstore.ErrNotFound)
		}
	}
}
