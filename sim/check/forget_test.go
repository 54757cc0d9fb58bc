package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim/check"
)

// trimmed trims the first three records away, and their span.
func (x *fixture) trimmed() catalog.SpanAt {
	x.c.Trimming(x.id, 3)
	_, err := x.cat.TrimStream(x.ctx, x.id, 3)
	require.NoError(x.t, err)
	spans, _, err := x.cat.Spans(x.ctx, x.id, 0, 1)
	require.NoError(x.t, err)
	_, err = x.cat.Kill(x.ctx, spans, func(catalog.SpanAt) bool { return true })
	require.NoError(x.t, err)
	return spans[0]
}

// absorbAgain appends the rest of the fixture's records, and then those of an append.
func (x *fixture) absorbAgain(id uint64, count uint32) {
	b, f := x.body(format.KindSlot, x.chain, 2, part{x.id, 4, 1})
	x.absorb(2, catalog.SlotIn{Slot: 2, Size: int64(len(b)), Footer: f})
	x.absorb(3, x.slot(3, part{x.id, id, count}))
}

func TestWhatIsTrimmedIsForgotten(t *testing.T) {
	f := plant(t, func(x *fixture) {
		before := x.c.State()["s"]
		require.Equal(t, []uint64{1, 2, 3}, before.Appends)
		began := x.c.Reading("s")
		x.trimmed()
		require.Equal(t, []uint64{1, 2, 3}, x.c.State()["s"].Appends, "a read is under way that may be given them")
		x.c.Read(began, x.id, 0, [][]byte{data(1, 0, 2), data(1, 1, 2), data(2, 0, 1)})
		x.c.Judged(began)
		x.c.Sending(5, "s", 2, false)
		x.absorbAgain(5, 2)

		after := x.c.State()["s"]
		require.Equal(t, 2, after.Forgotten)
		require.Equal(t, []uint64{3, 4, 5}, after.Appends)
		require.Equal(t, uint64(8), x.c.Next("s"))
		require.Equal(t, uint64(3), x.c.Since(x.id, 3000))
		require.Equal(t, uint64(5), x.c.Since(x.id, 3001))

		// The same, of which nothing or something else is forgotten, is equal; another order is not.
		same := check.Logical{Appends: []uint64{1, 2, 3, 4, 5}, Watermark: 3}
		require.True(t, same.Equal(after))
		require.True(t, after.Equal(same))
		for _, other := range [][]uint64{{2, 1, 3, 4, 5}, {1, 3, 4, 5}, {1, 2, 4, 3, 5}, {1, 2, 3, 4}, {1}, nil} {
			require.False(t, after.Equal(check.Logical{Appends: other, Watermark: 3}), other)
		}
	})
	require.Nil(t, f)
}

func TestWhatIsForgottenDoesNotComeBack(t *testing.T) {
	expect(t, []planted{
		{"a span", func(x *fixture) {
			s := x.trimmed()
			x.commit(metastore.Put(s.Key(), s.Span.Encode()), metastore.Put(catalog.RefKey(settled, x.id, 2), *newValue().uint(1, 1)))
		}, check.Lost, "offset 0 is there again"},
		{"an append whose outcome was unknown", func(x *fixture) {
			x.trimmed()
			x.absorbAgain(2, 1)
		}, check.Lost, "append 2 appears at offset 2 and again at 6"},
		{"an append that was acknowledged", func(x *fixture) {
			x.c.Final(2)
			x.trimmed()
			x.absorbAgain(2, 1)
		}, check.Lost, "append 2, which nobody sent"},
		{"an append that was acknowledged after it was trimmed", func(x *fixture) {
			x.trimmed()
			x.c.Acknowledged(2, x.id, 2, 2, true)
			x.c.Final(2)
			x.absorbAgain(2, 1)
		}, check.Lost, "append 2, which nobody sent"},
		{"other records for a read that began before", func(x *fixture) {
			began := x.c.Reading("s")
			x.trimmed()
			x.c.Read(began, x.id, 2, [][]byte{data(1, 1, 2)})
		}, check.Lost, "a reader was given record 1 of append 1 at offset 2"},
		{"a read that began after", func(x *fixture) {
			x.trimmed()
			x.c.Read(x.c.Reading("s"), x.id, 2, [][]byte{data(2, 0, 1)})
		}, check.Lost, "those below 3 had been trimmed"},
		{"a read that began after, while the name led to another", func(x *fixture) {
			x.trimmed()
			x.c.Read(x.c.Reading("other"), x.id, 2, [][]byte{data(2, 0, 1)})
		}, check.Lost, "given offset 2, which had been trimmed"},
	})
}
