package storetest

import (
	"bytes"
	"fmt"
	"sort"
	"testing"

	"github.com/nova-store/nova/metastore"
)

func testGet(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	e.require.Empty(e.get())
	e.require.Equal([]metastore.Record{{Key: "nothing"}}, e.get("nothing"))

	v1 := e.write(put("a", "1"), put("b", "2"))
	v2 := e.write(put("c", "3"))
	a := metastore.Record{Key: "a", Value: []byte("1"), Version: v1}
	b := metastore.Record{Key: "b", Value: []byte("2"), Version: v1}
	c := metastore.Record{Key: "c", Value: []byte("3"), Version: v2}
	e.require.Equal([]metastore.Record{c, {Key: "x"}, a, a, b}, e.get("c", "x", "a", "a", "b"),
		"one record for each key, in the order of the keys")
	e.requireAbsent("", "a\x00", "A")
}

func testScan(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	e.require.Equal(metastore.Page{}, e.scan(metastore.Range{}, 10), "an empty store")

	// Keys of a session and durable ones alternate.
	sess := e.openSession()
	var want []metastore.Record
	for i := range 10 {
		key, value := fmt.Sprintf("k/%d", i), fmt.Sprintf("value %d", i)
		op := put(key, value)
		if i%2 == 1 {
			op = putUnder(sess, key, value)
		}
		want = append(want, metastore.Record{Key: key, Value: []byte(value), Version: e.write(op)})
	}
	e.write(put("j", "below"), put("k", "just below"), put("k0", "just above"))

	all := metastore.Prefix("k/")
	e.require.Equal(metastore.Page{Records: want}, e.scan(all, 1000))
	e.require.Equal(metastore.Page{Records: want}, e.scan(all, 10), "nothing beyond the last record: no More")
	e.require.Equal(metastore.Page{Records: want[:9], More: true}, e.scan(all, 9))
	e.require.Equal(metastore.Page{Records: want[:1], More: true}, e.scan(all, 1))

	// The range is half-open.
	e.require.Equal(metastore.Page{Records: want[3:6]}, e.scan(metastore.Range{Start: "k/3", End: "k/6"}, 3))
	e.require.Equal(metastore.Page{Records: want[3:6]}, e.scan(metastore.Range{Start: "k/2\x00", End: "k/5\x00"}, 3))
	e.require.Equal(metastore.Page{}, e.scan(metastore.Range{Start: "k/3", End: "k/3"}, 3))
	e.require.Equal(metastore.Page{}, e.scan(metastore.Range{Start: "k/6", End: "k/3"}, 3), "a range that ends before it starts")
	e.require.Equal(metastore.Page{}, e.scan(metastore.Range{Start: "k/30", End: "k/31"}, 3))

	// An empty End is no bound, an empty Start neither.
	e.require.Equal([]string{"k/8", "k/9", "k0"}, keysOf(e.scan(metastore.Range{Start: "k/8"}, 100).Records))
	e.require.Equal([]string{"j", "k", "k/0"}, keysOf(e.scan(metastore.Range{End: "k/1"}, 100).Records))
	e.require.Len(e.scan(metastore.Range{}, 100).Records, 13)

	// A walk page by page, going on above the last key, sees everything once.
	for limit := 1; limit <= 4; limit++ {
		var walked []metastore.Record
		r := all
		for {
			page := e.scan(r, limit)
			walked = append(walked, page.Records...)
			if !page.More {
				break
			}
			e.require.Len(page.Records, limit, "a page with More is full")
			r.Start = page.Records[limit-1].Key + "\x00"
		}
		e.require.Equal(want, walked)
	}

	// Deleted keys are gone, also at the end of a page.
	e.write(metastore.Delete("k/0"), metastore.Delete("k/1"), metastore.Delete("k/5"), metastore.Delete("k/9"))
	e.require.Equal([]string{"k/2", "k/3", "k/4", "k/6", "k/7", "k/8"}, keysOf(e.scan(all, 6).Records))
	e.require.False(e.scan(all, 6).More)
	e.require.True(e.scan(all, 5).More)
}

// testScanKeyOrder: keys are any bytes, in bytewise order.
func testScanKeyOrder(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	sess := e.openSession()
	keys := []string{"\x00", "\x00\x00", "\x01", "a", "a\x00", "a\x00\xff", "a\x01", "aa", "a\xff", "b", "é", "\x80", "\xfe\xff", "\xff", "\xff\x00", "\xff\xff"}
	for i, key := range keys {
		if i%3 == 0 {
			e.write(putUnder(sess, key, key))
		} else {
			e.write(put(key, key))
		}
	}
	sort.Strings(keys)
	e.require.Equal(keys, keysOf(e.scan(metastore.Range{}, 100).Records))
	for i, key := range keys {
		e.require.Equal(keys[i:], keysOf(e.scan(metastore.Range{Start: key}, 100).Records))
		e.require.Equal(keys[:i], keysOf(e.scan(metastore.Range{End: key}, 100).Records))
		e.require.Equal(key, e.peek(metastore.Range{Start: key})[0].Key)
	}
	e.require.Equal([]string{"\xff", "\xff\x00", "\xff\xff"}, keysOf(e.scan(metastore.Prefix("\xff"), 100).Records))
}

func testPeek(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	e.require.Empty(e.peek())
	e.require.Zero(e.peek(metastore.Range{})[0].Version)

	sess := e.openSession()
	v1 := e.write(put("a/1", "x"), put("a/2", "y"), putUnder(sess, "b/1", "z"))
	v2 := e.write(put("b/2", "w"), putUnder(sess, "a/0", "v"), put("d/1", "u"))
	got := e.peek(
		metastore.Prefix("d/"),
		metastore.Prefix("c/"),
		metastore.Prefix("a/"),
		metastore.Prefix("a/"),
		metastore.Range{Start: "a/1", End: "a/2"},
		metastore.Range{Start: "a/1\x00"},
		metastore.Range{Start: "a/2\x00"},
		metastore.Range{Start: "b/1\x00", End: "b/2"},
		metastore.Range{Start: "b/2", End: "b/1"},
		metastore.Range{Start: "d/1\x00"},
		metastore.Range{},
	)
	versions := make([]metastore.Version, len(got))
	for i, rec := range got {
		versions[i] = rec.Version
		if !rec.Exists() {
			e.require.Empty(rec.Value)
			got[i] = metastore.Record{}
		}
	}
	e.require.Equal([]metastore.Version{v2, 0, v2, v2, v1, v1, v1, 0, 0, 0, v2}, versions)
	e.require.Equal([]string{"d/1", "", "a/0", "a/0", "a/1", "a/2", "b/1", "", "", "", "a/0"}, keysOf(got))
	e.require.Equal("u", string(got[0].Value))

	// Behind many deleted keys.
	var batch []metastore.Op
	for i := range 8 {
		batch = append(batch, put(fmt.Sprintf("q/%d", i), "m"))
	}
	e.write(batch...)
	for i := range batch {
		batch[i] = metastore.Delete(batch[i].Key)
	}
	e.write(batch[:7]...)
	e.require.Equal("q/7", e.peek(metastore.Prefix("q/"))[0].Key)
	e.write(batch[7])
	e.require.Zero(e.peek(metastore.Prefix("q/"))[0].Version)
	e.write(put("q/3", "again"))
	e.require.Equal("q/3", e.peek(metastore.Prefix("q/"))[0].Key)
}

// testValues: values are any bytes, empty ones too, and what was read stays as it
// was whatever is written later.
func testValues(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	sess := e.openSession()
	big := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	for name, value := range map[string][]byte{"empty": {}, "nil": nil, "zeros": {0, 0, 0}, "bytes": {0xff, 0x00, 0x80}, "big": big} {
		e.write(metastore.Put("durable/"+name, value), metastore.PutUnder(sess.ID(), "session/"+name, value))
		for _, rec := range e.get("durable/"+name, "session/"+name) {
			e.require.True(rec.Exists())
			e.require.True(bytes.Equal(value, rec.Value), rec.Key)
		}
	}

	got := e.get("durable/zeros")[0]
	page := e.scan(metastore.Prefix("durable/z"), 1)
	peeked := e.peek(metastore.Prefix("durable/z"))[0]
	for i := range 20 {
		e.write(metastore.Put("durable/zeros", []byte{1, byte(i), 1}))
	}
	for _, rec := range []metastore.Record{got, page.Records[0], peeked} {
		e.require.Equal([]byte{0, 0, 0}, rec.Value)
	}
}
