package soak

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api/service"
)

// reused is a name whose first stream was deleted and whose second one has it.
func reused() (tn *town, first, second *ledger) {
	tn = newTown("s", 1)
	first = newLedger(testSeed, 3, "s", "id:0000000000000003", 0)
	tn.found(first)
	second = newLedger(testSeed, 4, "s", "id:0000000000000004", 0)
	return tn, first, second
}

func roaming(tn *town, offset, seq uint64) service.Record {
	return service.Record{Offset: offset, Data: payload(testSeed, identity{tn.roamer.number, roamingClient, seq})}
}

func at(offset uint64) *uint64 { return &offset }

// Each record that is sent to a name belongs to the stream whose id the answer said, and to no other.
func TestRecordsOfAName(t *testing.T) {
	for name, c := range map[string]struct {
		do            func(tn *town, first, second *ledger)
		first, second verdicts
	}{
		"as answered": {do: func(tn *town, first, second *ledger) {
			first.settle(acknowledged, roamingClient, tn.roamer.send(1), 1, at(0))
			tn.found(second)
			second.settle(acknowledged, roamingClient, tn.roamer.send(2), 2, at(0))
			second.observe([]service.Record{roaming(tn, 0, 1), roaming(tn, 1, 2)})
		}},
		"answered before the creation": {do: func(tn *town, first, second *ledger) {
			if tn.home(second.id, ack{tn.roamer.send(2), 2, at(0)}) != nil {
				panic("nobody made it yet")
			}
			tn.found(second)
			second.observe([]service.Record{roaming(tn, 0, 0)}) // and the other one is lost
		}, second: verdicts{Lost: 1}},
		"of the stream before": {do: func(tn *town, first, second *ledger) {
			first.settle(acknowledged, roamingClient, tn.roamer.send(1), 1, at(0))
			tn.found(second)
			second.observe([]service.Record{roaming(tn, 0, 0)})
		}, second: verdicts{Duplicated: 1}},
		"never sent": {do: func(tn *town, first, second *ledger) {
			tn.found(second)
			second.observe([]service.Record{roaming(tn, 0, 0)})
		}, second: verdicts{Phantom: 1}},
		"refused": {do: func(tn *town, first, second *ledger) {
			tn.roamer.failed(refused, tn.roamer.send(1), 1)
			tn.found(second)
			second.observe([]service.Record{roaming(tn, 0, 0)})
		}, second: verdicts{Phantom: 1}},
		"of unknown outcome": {do: func(tn *town, first, second *ledger) {
			tn.roamer.failed(unknown, tn.roamer.send(1), 1)
			tn.found(second)
			second.observe([]service.Record{roaming(tn, 0, 0)})
		}},
		"of another name": {do: func(tn *town, first, second *ledger) {
			tn.found(second)
			second.observe([]service.Record{roaming(newTown("t", 2), 0, 0)})
		}, second: verdicts{Corrupt: 1}},
		"after the deletion": {do: func(tn *town, first, second *ledger) {
			tn.becomes(nil, first)
			(&soak{}).afterlife(first, tn.now(), tn.now(), "an append was acknowledged")
			tn.found(second)
		}, first: verdicts{Undead: 1}},
		"while it was undeleted": {do: func(tn *town, first, second *ledger) {
			tn.becomes(nil, first)
			before := tn.now()
			tn.becomes(nil, nil)
			tn.becomes(first, nil)
			(&soak{}).afterlife(first, before, tn.now(), "an append was acknowledged")
			tn.found(second)
		}},
		"nowhere, though it lives": {do: func(tn *town, first, second *ledger) {
			(&soak{}).lackOf(tn.now(), tn.now(), "an append")
			before := tn.now()
			tn.becomes(nil, nil) // it is being deleted
			(&soak{}).lackOf(before, tn.now(), "an append")
			tn.found(second)
		}, first: verdicts{Lost: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			tn, first, second := reused()
			c.do(tn, first, second)
			v, _, details := first.close(nil)
			require.Equal(t, c.first, v, "%v", details)
			end := &ending{next: second.facts.end()}
			if name == "answered before the creation" {
				end.next = 1
			}
			v, _, details = second.close(end)
			require.Equal(t, c.second, v, "%v", details)
			require.Zero(t, tn.strangers())
		})
	}
}

// What a deleted stream acknowledged is judged by the read before its deletion, and counted once; an undeleted one goes on.
func TestReadBeforeDeletion(t *testing.T) {
	b := newBook(0)
	b.append(1, 4)
	b.stream = b.stream[:3]
	b.observe(b.stream)
	b.readBefore(&ending{next: 3})
	b.delete()
	v, n, _ := b.close(nil)
	require.Equal(t, verdicts{Lost: 1}, v)
	require.Equal(t, tally{Acknowledged: 4, Gone: 4, Read: 3, ReadBefore: 3}, n)
	require.True(t, b.settle(acknowledged, 1, 4, 1, at(4)), "nothing more is taken")

	b = newBook(0)
	b.append(1, 2)
	late := b.send(1, 1)
	b.settle(unknown, 1, late, 1, nil)
	b.store(1, late, 1)
	b.observe(b.stream)
	b.readBefore(&ending{next: 3})
	b.delete()
	require.True(t, b.dying())
	b.revive()
	require.False(t, b.dying())
	require.Equal(t, uint64(1), b.deletions())
	b.append(1, 2)
	v, n = b.finish(0)
	require.True(t, v.clean(), "%v", b.details)
	require.Equal(t, tally{Acknowledged: 4, Unknown: 1, UnknownThere: 1, Read: 8, ReadBefore: 3, Readable: 5}, n)
}
