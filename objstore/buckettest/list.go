package buckettest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/objstore"
)

func keysOf(infos []objstore.Info) []string {
	keys := make([]string, 0, len(infos))
	for _, info := range infos {
		keys = append(keys, info.Key)
	}
	return keys
}

// listed is what List must give for objects whose bodies are bodies.
func listed(bodies map[string]string, prefix, after string, limit int) []objstore.Info {
	infos := []objstore.Info{}
	for key, body := range bodies {
		if strings.HasPrefix(key, prefix) && key > after {
			infos = append(infos, objstore.Info{Key: key, Size: int64(len(body))})
		}
	}
	slices.SortFunc(infos, func(x, y objstore.Info) int { return strings.Compare(x.Key, y.Key) })
	return infos[:min(len(infos), max(limit, 0))]
}

// requireList compares a listing with the model.
func (s *suite) requireList(bodies map[string]string, prefix, after string, limit int) {
	s.t.Helper()
	got, err := s.list(prefix, after, limit)
	require.NoError(s.t, err)
	require.Equal(s.t, listed(bodies, prefix, after, limit), got, "list of prefix %q after %q, limit %d", prefix, after, limit)
}

// orderKeys are keys whose order as strings is not the order of a tree's walk, since
// "-" and "." sort before "/", and "0" after it.
var orderKeys = []string{
	"a-", "a-b", "a-c/d", "a.b", "a.c/d", "a/b", "a/b-c", "a/b.c", "a/c/d", "a/c-d", "a/c.d/e", "a/c0", "a/c~",
	"a0", "a0b/c", "aa", "ab/c", "a~", "A/b", "b", "slot/a/1/0", "slot/a/1/1", "slot/a/10/0", "slot/a-b/1/0", "slot/a.b/1/0", "slot/b/1/0",
}

func testList(s *suite) {
	s.requireList(nil, "", "", 10)
	bodies := make(map[string]string)
	for i, key := range orderKeys {
		bodies[key] = strings.Repeat("x", i)
		require.NoError(s.t, s.put(key, bodies[key]))
	}
	prefixes := []string{"", "a", "a-", "a.", "a/", "a/b", "a/c", "a/c/", "a/c/d", "a/c/d/", "a0", "b", "slot/", "slot/a", "slot/a/", "slot/a/1", "slot/a/1/", "z", "..", "../", "/", "a//", "a/../a/", "%"}
	afters := append([]string{"", "a", "a/", "a/c", "a/c/", "a/c/z", "a-z", "slot", "slot/a/1", "slot/a/1/", "slot/a/2", "zzz", "0", "~"}, orderKeys...)
	for _, prefix := range prefixes {
		for _, limit := range []int{0, 1, 2, 100} {
			s.requireList(bodies, prefix, "", limit)
		}
		for _, after := range afters {
			s.requireList(bodies, prefix, after, 3)
		}
	}
}

// testListPages walks a whole prefix page by page.
func testListPages(s *suite) {
	bodies := make(map[string]string)
	for i := range 50 {
		key := fmt.Sprintf("slot/a/%d/%02d", i%3, i)
		bodies[key] = key
		require.NoError(s.t, s.put(key, key))
	}
	for _, limit := range []int{1, 7, 25, 50, 51} {
		var all []objstore.Info
		after := ""
		for {
			page, err := s.list("slot/a/", after, limit)
			require.NoError(s.t, err)
			require.LessOrEqual(s.t, len(page), limit)
			all = append(all, page...)
			if len(page) < limit {
				break
			}
			after = page[len(page)-1].Key
		}
		require.Equal(s.t, listed(bodies, "", "", 100), all)
	}
}
