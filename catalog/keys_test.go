package catalog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
)

// number draws numbers of every magnitude, and those at the edges of a hex digit.
var number = rapid.Custom(func(t *rapid.T) uint64 {
	v := rapid.Uint64().Draw(t, "v")
	return v >> rapid.IntRange(0, 63).Draw(t, "shift")
})

var nodeName = rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,62}`)

var chainID = rapid.Custom(func(t *rapid.T) ChainID {
	return ChainID{nodeName.Draw(t, "star"), number.Draw(t, "epoch")}
})

var objectKey = rapid.Custom(func(t *rapid.T) string {
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		return SlotKey(chainID.Draw(t, "chain"), number.Draw(t, "slot"))
	case 1:
		return BundleKey(chainID.Draw(t, "chain"), number.Draw(t, "slot"), [16]byte{byte(number.Draw(t, "flight"))})
	}
	return SettledKey(rapid.StringMatching(`[0-9A-HJKMNP-TV-Z]{26}`).Draw(t, "ulid"))
})

// Of each kind of key that is read in order: bytewise order is numeric order.
func TestKeyOrderIsNumericOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		c, id, object := chainID.Draw(t, "chain"), StreamID(number.Draw(t, "id")), objectKey.Draw(t, "object")
		for what, key := range map[string]func(uint64) string{
			"span":     func(n uint64) string { return SpanKey(id, n) },
			"stream":   func(n uint64) string { return StreamKey(StreamID(n)) },
			"ref":      func(n uint64) string { return RefKey(object, id, n) },
			"chain":    func(n uint64) string { return ChainKey(ChainID{c.Star, n}) },
			"trim":     func(n uint64) string { return TrimKey(ChainID{c.Star, n}) },
			"batch":    func(n uint64) string { return BatchKey(c, n) },
			"slot":     func(n uint64) string { return SlotKey(c, n) },
			"due":      func(n uint64) string { return DueKey(Reap, n, fold(object)) },
			"schedule": func(n uint64) string { return ScheduleKey(c, 1, int64(n>>1)) },
		} {
			x, y := a, b
			if what == "schedule" {
				x, y = a>>1, b>>1
			}
			require.Equal(t, x < y, key(a) < key(b), what)
			require.Equal(t, x == y, key(a) == key(b), what)
		}
	})
}

// A prefix holds its own keys and nobody else's, whatever the names look like.
func TestPrefixesDoNotMix(t *testing.T) {
	in := func(r metastore.Range, key string) bool { return key >= r.Start && (r.End == "" || key < r.End) }
	rapid.Check(t, func(t *rapid.T) {
		a, b, n := chainID.Draw(t, "a"), chainID.Draw(t, "b"), number.Draw(t, "n")
		if rapid.Bool().Draw(t, "near") {
			b.Star = a.Star + rapid.SampledFrom([]string{"", "-", ".", "_", "0", "a"}).Draw(t, "tail")
			if len(b.Star) > 63 {
				b.Star = b.Star[:63]
			}
		}
		require.True(t, in(metastore.Prefix(BatchPrefix(a)), BatchKey(a, n)))
		require.Equal(t, a == b, in(metastore.Prefix(BatchPrefix(a)), BatchKey(b, n)))
		require.Equal(t, a.Star == b.Star, in(metastore.Prefix(ChainPrefix(a.Star)), ChainKey(b)))
		require.False(t, in(metastore.Prefix(ChainPrefix(a.Star)), ChainHeadKey(b.Star)))

		x, y := objectKey.Draw(t, "x"), objectKey.Draw(t, "y")
		require.True(t, in(metastore.Prefix(RefPrefix(x)), RefKey(x, 1, n)))
		require.Equal(t, x == y, in(metastore.Prefix(RefPrefix(x)), RefKey(y, 1, n)))

		id, other := StreamID(number.Draw(t, "id")), StreamID(number.Draw(t, "other"))
		require.True(t, in(metastore.Prefix(SpanPrefix(id)), SpanKey(id, n)))
		require.Equal(t, id == other, in(metastore.Prefix(SpanPrefix(id)), SpanKey(other, n)))
		require.Equal(t, id == other, in(metastore.Prefix(PendingPrefix(id)), pendingKey(other, BatchKey(a, n))))
	})
}

func TestKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, n := chainID.Draw(t, "chain"), number.Draw(t, "n")
		id, object := StreamID(number.Draw(t, "id")), objectKey.Draw(t, "object")

		gotChain, err := ParseChainKey(ChainKey(c))
		require.NoError(t, err)
		require.Equal(t, c, gotChain)

		gotChain, err = ParseChainSubject(c.String())
		require.NoError(t, err)
		require.Equal(t, c, gotChain)

		flight := [16]byte{byte(n), 15: byte(n >> 8)}
		bundle := BundleKey(c, n, flight)
		bundleChain, bundleN, gotFlight, err := ParseBundleKey(bundle)
		require.NoError(t, err)
		require.Equal(t, c, bundleChain)
		require.Equal(t, n, bundleN)
		require.Equal(t, flight, gotFlight)
		require.True(t, IsBundle(bundle) && !IsSlot(bundle) && !IsBundle(SlotKey(c, n)))
		gotChain, gotN, err := ParseSlotKey(SlotKey(c, n))
		require.NoError(t, err)
		require.Equal(t, c, gotChain)
		require.Equal(t, n, gotN)

		gotID, gotN, err := ParseSpanKey(SpanKey(id, n))
		require.NoError(t, err)
		require.Equal(t, id, gotID)
		require.Equal(t, n, gotN)

		gotObject, gotID, gotN, err := ParseRefKey(RefKey(object, id, n))
		require.NoError(t, err)
		require.Equal(t, object, gotObject)
		require.Equal(t, id, gotID)
		require.Equal(t, n, gotN)

		require.Equal(t, object, unfold(fold(object)))
		require.NotContains(t, fold(object), "/")
		require.NoError(t, objstore.CheckKey(object))
		require.Equal(t, strings.HasPrefix(object, "slot/"), IsSlot(object))
	})
}

// due is one key of each queue that has subjects of its kind.
func due(q Queue, order uint64, c ChainID, id StreamID, object string) (key, subject string) {
	switch q {
	case Teardown, Retention:
		return DueKey(q, order, id.String()), id.String()
	case Settle, TrimCheck:
		return DueKey(q, order, c.String()), c.String()
	case Reap, GC:
		return DueKey(q, order, fold(object)), fold(object)
	case Orphan:
		return IntentKey(object), fold(object)
	}
	return ScheduleKey(c, uint64(id), int64(order)), c.String()
}

func TestParseDueOfEveryQueue(t *testing.T) {
	require.Len(t, Queues(), 8)
	rapid.Check(t, func(t *rapid.T) {
		order := number.Draw(t, "order") >> 1
		c, id, object := chainID.Draw(t, "chain"), StreamID(number.Draw(t, "id")), objectKey.Draw(t, "object")
		for _, q := range Queues() {
			key, subject := due(q, order, c, id, object)
			r := ShardRange(q, Shard(subject))
			require.True(t, key >= r.Start && key < r.End, "discovery of %s finds %s", q, key)

			d, err := ParseDue(key)
			require.NoError(t, err)
			want := Due{Queue: q, Shard: Shard(subject), Key: key, Order: order, Subject: subject}
			switch q {
			case Orphan:
				want.Order = 0
			case Denorm:
				want.Chain, want.First = c, uint64(id)
			}
			require.Equal(t, want, d)
			switch q {
			case Reap, GC, Orphan:
				require.Equal(t, object, d.Object())
			case Denorm:
				require.Equal(t, BatchKey(c, uint64(id)), d.PrimaryKey())
				continue
			}
			require.Equal(t, key, d.PrimaryKey())
		}
		// A settle marker's subject can be a star: its decommission.
		d, err := ParseDue(DueKey(Settle, order, c.Star))
		require.NoError(t, err)
		require.Equal(t, c.Star, d.Subject)
	})
}

func TestParseDueRefuses(t *testing.T) {
	const n = "000000000000001f"
	for _, key := range []string{
		"", "due", "due/reap", "due/reap/00", "due/reap/00/" + n + "~settled!x/y",
		"due/reap/40/" + n + "~settled!x", "due/reap/0/" + n + "~settled!x", "due/reap/zz/" + n + "~settled!x",
		"due/reap/00/" + n + "settled!x", "due/reap/00/" + n + "~", "due/reap/00/" + n + "~settled",
		"due/reap/00/000000000000001F~settled!x", "due/reap/00/00000000000000001~settled!x",
		"due/gc/00/" + n + "~x", "due/orphan/00/settled", "due/denorm/00/a~" + n + "~" + n,
		"due/teardown/00/" + n + "~a~" + n, "due/retention/00/" + n + "~name",
		"due/trimcheck/00/" + n + "~a", "due/trimcheck/00/" + n + "~-a~" + n, "due/trimcheck/00/" + n + "~a~1",
		"due/settle/00/" + n + "~-a", "due/settle/00/" + n + "~a~" + n + "~" + n,
		"due/other/00/" + n + "~a", "duh/reap/00/" + n + "~settled!x",
		"schedule/reap/00/" + n + "~settled!x",
		"schedule/denorm/00/" + n + "~a~" + n, "schedule/denorm/00/" + n + "~a~" + n + "~1",
		"schedule/denorm/00/" + n + "~-~" + n + "~" + n, "schedule/denorm/00/1~a~" + n + "~" + n,
		"schedule/denorm/00/" + n + "~a~x~" + n,
	} {
		_, err := ParseDue(key)
		require.Error(t, err, key)
	}
	rapid.Check(t, func(t *rapid.T) {
		// Whatever parses is a key that can be worked on: it names itself.
		key := rapid.StringMatching(`(due|schedule)/(reap|gc|orphan|denorm|settle|teardown)/[0-3][0-9a-f]/[0-9a-f]{15,17}~?[a-f0-9~!]{0,40}`).Draw(t, "key")
		if d, err := ParseDue(key); err == nil {
			require.Equal(t, key, d.Key)
			require.NotEmpty(t, d.Subject)
		}
	})
	for _, key := range []string{"", "chain/a", "chain/a/1", "trim/a/" + n, "chain/a/" + n + "/x"} {
		_, err := ParseChainKey(key)
		require.Error(t, err, key)
	}
	for _, key := range []string{"", "slot/a/1/2", "settled/x", "slot/a/" + n, "slot/a/" + n + "/x"} {
		_, _, err := ParseSlotKey(key)
		require.Error(t, err, key)
	}
	flight := "-00000000000000000000000000000001"
	for _, key := range []string{"", "bundle/a/" + n + "/" + n, "bundle/a/" + n + "/" + n + flight + "0", "bundle/a/1/" + n + flight,
		"bundle/a/" + n + "/1" + flight, "bundle/-/" + n + "/" + n + flight, "slot/a/" + n + "/" + n + flight,
		"bundle/a/" + n + "/" + n + strings.Replace(flight, "1", "A", 1), "bundle/a/" + n + "/" + n + strings.Replace(flight, "1", "x", 1)} {
		_, _, _, err := ParseBundleKey(key)
		require.Error(t, err, key)
	}
	for _, key := range []string{"", "span/1/2", "span/" + n + "~" + n, "span/" + n + "/x" + n[1:], "span/x" + n[1:] + "/" + n} {
		_, _, err := ParseSpanKey(key)
		require.Error(t, err, key)
	}
	for _, key := range []string{"", "ref/settled!x/" + n, "ref/settled!x/" + n + "/" + n, "ref/settled!x/" + n + "~x" + n[1:], "ref/settled!x/x" + n[1:] + "~" + n} {
		_, _, _, err := ParseRefKey(key)
		require.Error(t, err, key)
	}
}

func TestShardIsFrozen(t *testing.T) {
	// A change here strands every marker that stands. The first is xxhash64's published
	// value of no bytes, 0xef46db3751d8e999.
	for s, want := range map[string]int{
		"": 0xef46db3751d8e999 % 64, "a": 27, "star~0000000000000001": 48,
		"settled!01ARZ3NDEKTSV4RRFFQ69G5FAV": 9, "0100000000000001": 0,
	} {
		require.Equal(t, want, Shard(s), "%q", s)
	}
	seen := make(map[int]bool)
	for i := range 2000 {
		seen[Shard(fmt.Sprint(i))] = true
	}
	require.Len(t, seen, Shards, "every shard is used, none beyond")
}

func TestPendingKey(t *testing.T) {
	c := ChainID{"a", 1}
	require.Equal(t, "pending/0000000000000007/denorm~"+hex2(Shard(c.String()))+"~a~0000000000000001~0000000000000002",
		pendingKey(7, BatchKey(c, 2)))
	require.Equal(t, "pending/0000000000000007/reap~"+hex2(Shard("settled!x"))+"~0000000000000003~settled!x",
		pendingKey(7, DueKey(Reap, 3, "settled!x")))
}

func TestPastDue(t *testing.T) {
	now := time.UnixMilli(10_000)
	require.Equal(t, 4*time.Second, Due{Queue: Reap, Order: 6000}.PastDue(now))
	require.Equal(t, 4*time.Second, Due{Queue: Denorm, Order: 6000}.PastDue(now))
	require.Equal(t, -time.Second, Due{Queue: Settle, Order: 11000}.PastDue(now))
	require.Zero(t, Due{Queue: Orphan}.PastDue(now))
	require.Zero(t, Due{Queue: GC, Order: 5}.PastDue(now))
}

func TestStreamNames(t *testing.T) {
	for _, name := range []string{"a", ".a", "...", "a/b", "日本", "a b", "a\u00a0b", strings.Repeat("x", 200), "%2F", "\ufffd"} {
		require.NoError(t, CheckStreamName(name), "%q", name)
	}
	for _, name := range []string{"", ".", "..", "a!b", "a~b", "a\nb", "a\x00", "a\x7f", "a\u0085b", "a\xffb", strings.Repeat("x", 201)} {
		require.ErrorIs(t, CheckStreamName(name), ErrBadName, "%q", name)
	}
}

func TestNodeNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, CheckNodeName(nodeName.Draw(t, "name")))
	})
	for _, name := range []string{"", "-a", ".a", "_a", "a/b", "a~b", "a!b", "a b", "é", "a\n", strings.Repeat("x", 64)} {
		require.ErrorIs(t, CheckNodeName(name), ErrBadName, "%q", name)
	}
}

func TestShardRangesAreThoseOfEachShard(t *testing.T) {
	for _, q := range Queues() {
		all := ShardRanges(q)
		require.Len(t, all, Shards)
		for shard, r := range all {
			require.Equal(t, ShardRange(q, shard), r)
		}
	}
}
