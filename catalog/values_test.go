package catalog

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// codec is a value's two halves, for tests that treat all values alike.
type codec struct {
	name   string
	draw   func(t *rapid.T) (value any, encoded []byte)
	decode func(b []byte) (any, error)
}

// lenient gives a decoder that has defaults instead of an error the shape of the others.
func lenient[T any](decode func([]byte) T) func([]byte) (any, error) {
	return func(b []byte) (any, error) { return decode(b), nil }
}

func strict[T any](decode func([]byte) (T, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) { return decode(b) }
}

// of draws any value of a type that holds no list and no state.
func of[T any](encode func(T) []byte) func(t *rapid.T) (any, []byte) {
	return func(t *rapid.T) (any, []byte) {
		v := rapid.Make[T]().Draw(t, "value")
		return v, encode(v)
	}
}

var attribution = rapid.Custom(func(t *rapid.T) Attribution {
	a := Attribution{Shared: rapid.Bool().Draw(t, "shared")}
	for range rapid.IntRange(0, MaxAttributed).Draw(t, "streams") {
		a.Streams = append(a.Streams, StreamID(number.Draw(t, "stream")))
	}
	return a
})

func codecs() []codec {
	return []codec{
		{"format", of(Format.encode), strict(DecodeFormat)},
		{"star", func(t *rapid.T) (any, []byte) {
			v := rapid.Make[Star]().Draw(t, "value")
			v.Retired = v.Retired || v.Swept
			return v, v.encode()
		}, strict(DecodeStar)},
		{"restored", of(Restored.encode), strict(DecodeRestored)},
		{"route", of(Route.encode), strict(DecodeRoute)},
		{"chain head", of(ChainHead.encode), strict(DecodeChainHead)},
		{"trim", of(Trim.encode), strict(DecodeTrim)},
		{"mark", of(Mark.encode), strict(DecodeMark)},
		{"ref", of(Ref.encode), strict(DecodeRef)},
		{"lease", of(Lease.encode), strict(DecodeLease)},
		{"intent", of(Intent.encode), strict(DecodeIntent)},
		{"id", of(encodeID), strict(DecodeID)},
		{"settle marker", of(SettleMarker.encode), lenient(DecodeSettleMarker)},
		{"teardown marker", of(TeardownMarker.encode), strict(DecodeTeardownMarker)},
		{"trimcheck marker", of(TrimCheckMarker.encode), strict(DecodeTrimCheckMarker)},
		{"chain", func(t *rapid.T) (any, []byte) {
			v := rapid.Make[Chain]().Draw(t, "value")
			v.State %= ChainSealed + 1
			return v, v.encode()
		}, strict(DecodeChain)},
		{"stream", func(t *rapid.T) (any, []byte) {
			v := rapid.Make[Stream]().Draw(t, "value")
			v.State %= StreamTearing + 1
			return v, v.encode()
		}, strict(DecodeStream)},
		{"head", func(t *rapid.T) (any, []byte) {
			v := Head{Next: number.Draw(t, "next"), Bytes: number.Draw(t, "bytes"),
				MaxTimestamp: rapid.Int64().Draw(t, "ts"), EvictedUpTo: number.Draw(t, "evicted")}
			for range rapid.IntRange(0, 3).Draw(t, "chains") {
				v.Chains = append(v.Chains, ChainLast{chainID.Draw(t, "chain"), number.Draw(t, "slot")})
			}
			for range rapid.IntRange(0, 4).Draw(t, "producers") {
				v.Producers = append(v.Producers, rapid.Make[ProducerState]().Draw(t, "producer"))
			}
			return v, v.encode()
		}, strict(DecodeHead)},
		{"span", func(t *rapid.T) (any, []byte) {
			v := rapid.Make[Span]().Draw(t, "value")
			v.Offset, v.Length = v.Offset&math.MaxInt64, max(v.Length&math.MaxInt64, 1)
			v.Count = min(max(v.Count, 1), math.MaxUint64-v.First)
			v.First = min(v.First, math.MaxUint64-1)
			v.Count = max(v.Count, 1)
			return v, v.Encode()
		}, strict(DecodeSpan)},
		{"batch marker", func(t *rapid.T) (any, []byte) {
			v := Batch{End: number.Draw(t, "end"), Ready: rapid.Int64().Draw(t, "ready"), Bytes: number.Draw(t, "bytes"),
				Damaged: rapid.Bool().Draw(t, "damaged"), Attribution: attribution.Draw(t, "attribution")}
			for range rapid.IntRange(0, 5).Draw(t, "items") {
				v.Inventory = append(v.Inventory, rapid.Make[SlotItem]().Draw(t, "item"))
			}
			return v, v.Encode()
		}, strict(DecodeBatch)},
		{"reap marker", func(t *rapid.T) (any, []byte) {
			v := ReapMarker{Delay: rapid.Int64().Draw(t, "delay"), Attribution: attribution.Draw(t, "attribution"), Size: number.Draw(t, "size")}
			return v, v.encode()
		}, lenient(DecodeReapMarker)},
	}
}

func TestValuesRoundTrip(t *testing.T) {
	for _, c := range codecs() {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want, b := c.draw(t)
				require.Contains(t, []byte{valueFormat, markFormat}, b[0])
				got, err := c.decode(b)
				require.NoError(t, err)
				require.Equal(t, want, got)
			})
		})
	}
}

// What is cut, has a byte too many, or is of another format is refused, or, of a marker that may be
// an object's last watcher, read with the most careful defaults.
func TestDamagedValuesAreRefused(t *testing.T) {
	for _, c := range codecs() {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				whole, b := c.draw(t)
				cut := b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
				if older(whole, cut) {
					cut = nil // a value as it was before its last number was added
				}
				other := append([]byte{markFormat + 1}, b[1:]...)
				for _, bad := range [][]byte{cut, append(b[:len(b):len(b)], 0), other} {
					got, err := c.decode(bad)
					switch c.name {
					case "settle marker":
						require.Equal(t, SettleMarker{}, got)
					case "reap marker":
						require.Equal(t, ReapMarker{Attribution: Attribution{Shared: true}}, got)
					default:
						require.ErrorIs(t, err, ErrCorruptValue)
					}
				}
			})
		})
	}
}

// older tells whether b is the value without the number that was added to its kind later.
func older(v any, b []byte) bool {
	switch v := v.(type) {
	case ReapMarker:
		v.Size = 0
		e := v.encode()
		return bytes.Equal(b, e[:len(e)-1])
	case TrimCheckMarker:
		v.Bytes = 0
		e := v.encode()
		return bytes.Equal(b, e[:len(e)-1])
	}
	return false
}

// Values of before sizes were kept read as they were meant.
func TestValuesWithoutSizesAreRead(t *testing.T) {
	reap := ReapMarker{Delay: 7, Attribution: Attribution{Streams: []StreamID{3}}}
	b := reap.encode()
	require.Equal(t, reap, DecodeReapMarker(b[:len(b)-1]))
	trim := TrimCheckMarker{UpTo: 9}
	b = trim.encode()
	got, err := DecodeTrimCheckMarker(b[:len(b)-1])
	require.NoError(t, err)
	require.Equal(t, trim, got)
}

// Numbers that do not fit what they are read into are refused, not cut to something
// that means another state, epoch or offset.
func TestDecodersRefuseWhatDoesNotFit(t *testing.T) {
	wide := func(fill func(e *encoder)) []byte {
		e := newEncoder(64)
		fill(e)
		return e.b
	}
	_, err := DecodeStream(wide(func(e *encoder) {
		e.string("a")
		e.uint(256) // active, were it cut to a byte
		for range 2 {
			e.int(0)
		}
		e.uint(0)
		e.int(0)
		e.uint(0)
	}))
	require.ErrorIs(t, err, ErrCorruptValue)
	for _, state := range []uint64{3, 256, 257} {
		_, err = DecodeChain(wide(func(e *encoder) {
			e.uint(state)
			for range 7 {
				e.uint(0)
			}
			e.int(0)
		}))
		require.ErrorIs(t, err, ErrCorruptValue, state)
	}
	_, err = DecodeHead(wide(func(e *encoder) {
		e.uint(0)
		e.uint(0)
		e.int(0)
		e.uint(0)
		e.uint(0)
		e.uint(1)
		e.string("p")
		e.uint(1 << 32) // epoch 0, were it cut
		e.uint(0)
		e.uint(0)
		e.uint(0)
	}))
	require.ErrorIs(t, err, ErrCorruptValue)
	_, err = DecodeSpan(Span{First: math.MaxUint64, Object: "settled/x", Length: 1, Count: 2}.Encode())
	require.ErrorIs(t, err, ErrCorruptValue, "its last offset lies before its first")
	_, err = DecodeSpan(Span{First: 1, Object: "settled/x", Length: 1}.Encode())
	require.ErrorIs(t, err, ErrCorruptValue, "no record")
}

// A count that promises more than there is allocates nothing by its word.
func TestHugeCountsAllocateLittle(t *testing.T) {
	huge := binary.AppendUvarint([]byte{valueFormat, 0, 0, 0, 0}, math.MaxUint64)
	huge = append(huge, strings.Repeat("\xff", 1000)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, c := range codecs() {
		_, _ = c.decode(huge)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func TestAttribution(t *testing.T) {
	var a Attribution
	for i := range MaxAttributed {
		require.True(t, a.add(StreamID(i)))
		require.False(t, a.add(StreamID(i)), "already there")
	}
	require.False(t, a.Shared)
	kept := a
	require.True(t, a.add(100), "the ninth makes it shared")
	require.True(t, a.Shared)
	require.Len(t, a.Streams, MaxAttributed)
	require.False(t, a.add(101), "it is shared already")
	require.False(t, kept.Shared, "a copy is not changed")

	short := Attribution{Streams: make([]StreamID, 1, 8)}
	x, y := short, short
	x.add(1)
	y.add(2)
	require.Equal(t, []StreamID{0, 1}, x.Streams, "two copies do not write into one array")
	require.Equal(t, []StreamID{0, 2}, y.Streams)
}
