package soak

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api/service"
)

// A page must go on where the one before it ended, and hold nothing that was trimmed before it was asked for.
func TestPagesWithoutGaps(t *testing.T) {
	page := func(b *book, from, to uint64) service.ReadResult {
		return service.ReadResult{First: 0, Next: to, End: uint64(len(b.stream)), Records: b.stream[from:to]}
	}
	for name, c := range map[string]struct {
		pages func(*follower, *book)
		want  verdicts
	}{
		"dense": {func(f *follower, b *book) {
			f.take(page(b, 0, 4), 0)
			f.take(page(b, 4, 4), 0)
			f.take(page(b, 4, 10), 0)
		}, verdicts{}},
		"a gap between pages": {func(f *follower, b *book) {
			f.take(page(b, 0, 4), 0)
			f.take(page(b, 5, 10), 0)
		}, verdicts{Lost: 1}},
		"a page again": {func(f *follower, b *book) {
			f.take(page(b, 0, 4), 0)
			f.take(page(b, 0, 4), 0)
		}, verdicts{Lost: 1}},
		"an end that says otherwise": {func(f *follower, b *book) {
			p := page(b, 0, 4)
			p.Next = 6
			f.take(p, 0)
		}, verdicts{Lost: 1}},
		"trimmed records": {func(f *follower, b *book) { f.take(page(b, 0, 4), 3) }, verdicts{Undead: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(0)
			b.append(1, 10)
			c.pages(&follower{l: b.ledger}, b)
			require.Equal(t, c.want, b.verdicts, "%v", b.details)
		})
	}
}
