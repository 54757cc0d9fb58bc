package soak

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api/service"
)

const testSeed = 7

// book is a ledger, and a stream that a test makes up: what is told to the ledger need not be what the stream holds.
type book struct {
	*ledger
	stream []service.Record
}

func newBook(maxBytes uint64) *book {
	return &book{ledger: newLedger(testSeed, 3, "s", "id:0000000000000003", maxBytes)}
}

// append appends n records of a client and acknowledges them.
func (b *book) append(client uint32, n int) {
	first := uint64(len(b.stream))
	seq := b.send(client, n)
	b.store(client, seq, n)
	b.settle(acknowledged, client, seq, n, &first)
}

// store puts records into the stream.
func (b *book) store(client uint32, seq uint64, n int) {
	for i := range n {
		b.stream = append(b.stream, service.Record{Offset: uint64(len(b.stream)), Data: payload(testSeed, identity{3, client, seq + uint64(i)})})
	}
}

// finish reads the stream from an offset on and closes the ledger.
func (b *book) finish(first uint64) (verdicts, tally) {
	end := &ending{first: first, next: uint64(len(b.stream))}
	for _, r := range b.stream[first:] {
		end.bytes += uint64(len(r.Data))
	}
	if first < end.next {
		end.firstBytes = uint64(len(b.stream[first].Data))
	}
	b.observe(b.stream[first:])
	v, n, _ := b.close(end)
	return v, n
}

func TestWhatIsRightIsFoundRight(t *testing.T) {
	b := newBook(0)
	b.append(1, 4)
	b.append(2, 2)
	late := b.send(2, 3) // its outcome is unknown, and it lands behind what came after it
	b.settle(unknown, 2, late, 3, nil)
	b.append(2, 1)
	b.store(2, late, 3)
	never := b.send(1, 2)
	b.settle(unknown, 1, never, 2, nil)
	no := b.send(1, 5)
	b.settle(refused, 1, no, 5, nil)
	silent := b.send(1, 1)
	b.store(1, silent, 1)
	b.settle(acknowledged, 1, silent, 1, nil)
	b.trim(3)
	b.trimDone(2)
	v, n := b.finish(2)
	require.True(t, v.clean(), "%+v %v", v, b.details)
	require.Equal(t, tally{Acknowledged: 8, Refused: 5, Unknown: 5, UnknownThere: 3, Read: 9, Readable: 9, Gone: 2}, n)
}

// Each plants one fault in a stream that is right otherwise, and must find it and nothing else.
func TestPlantedFaultsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		first uint64
		plant func(*book)
		want  verdicts
	}{
		"lost at the end":   {plant: func(b *book) { b.stream = b.stream[:7] }, want: verdicts{Lost: 3}},
		"lost at the begin": {first: 2, plant: func(b *book) { b.trim(1) }, want: verdicts{Lost: 1}},
		"lost, and others in their place": {plant: func(b *book) {
			b.stream = b.stream[:9]
			b.store(2, b.send(2, 1), 1)
		}, want: verdicts{Reordered: 1}},
		"acknowledged without an offset, and nowhere": {plant: func(b *book) { b.settle(acknowledged, 1, b.send(1, 2), 2, nil) }, want: verdicts{Lost: 2}},
		"duplicated": {plant: func(b *book) { b.store(1, 1, 2) }, want: verdicts{Duplicated: 2}},
		"of unknown outcome, twice": {plant: func(b *book) {
			seq := b.send(2, 2)
			b.settle(unknown, 2, seq, 2, nil)
			b.store(2, seq, 2)
			b.append(1, 1)
			b.store(2, seq, 2)
		}, want: verdicts{Duplicated: 2}},
		"reordered": {plant: func(b *book) {
			first := b.send(2, 2)
			b.append(2, 1)
			at := uint64(len(b.stream))
			b.store(2, first, 2)
			b.settle(acknowledged, 2, first, 2, &at)
		}, want: verdicts{Reordered: 1}},
		"seen otherwise before": {plant: func(b *book) {
			b.observe([]service.Record{{Offset: 9, Data: payload(testSeed, identity{3, 1, 0})}})
			b.observe([]service.Record{{Offset: 9, Data: payload(testSeed, identity{3, 1, 0})}})
		}, want: verdicts{Reordered: 2}},
		"a byte differs":    {plant: func(b *book) { b.stream[4].Data[60] ^= 1 }, want: verdicts{Corrupt: 1}},
		"cut short":         {plant: func(b *book) { b.stream[4].Data = b.stream[4].Data[:90] }, want: verdicts{Corrupt: 1}},
		"of another stream": {plant: func(b *book) { b.stream[4].Data = payload(testSeed, identity{2, 1, 4}) }, want: verdicts{Corrupt: 1}},
		"of another run":    {plant: func(b *book) { b.stream[4].Data = payload(testSeed+1, identity{3, 1, 4}) }, want: verdicts{Corrupt: 1}},
		"refused": {plant: func(b *book) {
			seq := b.send(2, 2)
			b.settle(refused, 2, seq, 2, nil)
			b.store(2, seq, 2)
		}, want: verdicts{Phantom: 2}},
		"never sent":                  {plant: func(b *book) { b.store(2, 4, 3) }, want: verdicts{Phantom: 3}},
		"readable though trimmed":     {plant: func(b *book) { b.trim(4); b.trimDone(4) }, want: verdicts{Undead: 4}},
		"trimmed further than asked":  {first: 5, plant: func(b *book) { b.trim(4); b.trimDone(4) }, want: verdicts{Lost: 1}},
		"a first offset without trim": {plant: func(b *book) { b.mayBegin(2) }, want: verdicts{Lost: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(0)
			b.append(1, 6)
			b.append(2, 4)
			c.plant(b)
			v, _ := b.finish(c.first)
			require.Equal(t, c.want, v, "%v", b.details)
			require.NotEmpty(t, b.details)
		})
	}
}

// A record expires once the policy's bytes lie behind it, and not before.
func TestPolicyToTheByte(t *testing.T) {
	behind := func(b *book, first int) (n uint64) {
		for _, r := range b.stream[first+1:] {
			n += uint64(len(r.Data))
		}
		return n
	}
	for _, c := range []struct {
		first uint64
		less  uint64 // than what is behind offset 2
		want  verdicts
	}{
		{first: 3, less: 0},                                   // what is behind 2 is as much as expires it
		{first: 2, less: 0, want: verdicts{Undead: 1}},        // served nevertheless
		{first: 3, less: ^uint64(0), want: verdicts{Lost: 1}}, // a byte is missing
		{first: 2, less: ^uint64(0)},
	} {
		b := newBook(1)
		b.append(1, 6)
		b.maxBytes = behind(b, 2) - c.less
		v, _ := b.finish(c.first)
		require.Equal(t, c.want, v, "%+v: %v", c, b.details)
	}
}

func TestOfADeletedStreamAllIsGone(t *testing.T) {
	b := newBook(0)
	b.append(1, 6)
	b.delete()
	b.settle(acknowledged, 1, b.send(1, 2), 2, nil)
	v, n, _ := b.close(nil)
	require.True(t, v.clean(), "%+v %v", v, b.details)
	require.Equal(t, tally{Acknowledged: 8, Gone: 8}, n)

	b = newBook(0)
	b.append(1, 2)
	b.store(1, 0, 1)
	b.observe(b.stream)
	b.delete()
	b.afterlife("a read found it")
	v, _, _ = b.close(nil)
	require.Equal(t, verdicts{Duplicated: 1, Undead: 1}, v)
}
