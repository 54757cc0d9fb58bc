package star

import (
	"sort"
	"sync"

	"github.com/nova-store/nova/catalog"
)

// window keeps the records absorbed last in memory, up to a number of bytes. It
// only saves reads of the bucket: what may be read, and how far, the store's
// records say. It can't be wrong, since an offset of a stream id holds one value for
// ever, and can't be stale, since nothing in it changes.
//
// Records are kept as their producers handed them over, uncopied.
type window struct {
	most    int64
	mu      sync.Mutex
	bytes   int64
	streams map[catalog.StreamID]*tail
	order   fifo[catalog.StreamID] // one for each kept append, oldest first
}

// tail is what is kept of one stream: appends with ascending offsets, not always
// adjoining, since other stars may append to the stream too.
type tail struct{ kept fifo[kept] }

type kept struct {
	first   uint64
	records []Record
	stamp   int64
	weight  int64
}

func (w *window) init(most int64) {
	w.most = most
	w.streams = make(map[catalog.StreamID]*tail)
}

// add keeps an append that was accepted at first. Each stream's are added in the
// order of their offsets.
func (w *window) add(p *pending, first uint64) {
	if p.weight > w.most {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.streams[p.stream]
	if t == nil {
		t = &tail{}
		w.streams[p.stream] = t
	}
	t.kept.push(kept{first, p.records, p.stamp, p.weight})
	w.order.push(p.stream)
	w.bytes += p.weight
	for w.bytes > w.most {
		id := w.order.pop()
		t := w.streams[id]
		w.bytes -= t.kept.pop().weight
		if t.kept.len() == 0 {
			delete(w.streams, id)
		}
	}
}

// records appends to out the kept records from offset on, without a gap, up to
// count of them and until they exceed bytes. Their data is the window's, and
// never changes.
func (w *window) records(out []Record, id catalog.StreamID, from, count uint64, bytes int64) []Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.streams[id]
	if t == nil {
		return out
	}
	all := t.kept.all()
	i := sort.Search(len(all), func(i int) bool { return all[i].first > from }) - 1
	for ; i >= 0 && i < len(all); i++ {
		k := &all[i]
		if from < k.first || from-k.first >= uint64(len(k.records)) {
			break
		}
		for _, r := range k.records[from-k.first:] {
			if count == 0 || bytes < 0 {
				return out
			}
			if r.Timestamp == 0 {
				r.Timestamp = k.stamp
			}
			out = append(out, r)
			count--
			bytes -= int64(len(r.Data))
			from++
		}
	}
	return out
}

// fifo is a queue on one slice.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }
func (q *fifo[T]) all() []T { return q.items[q.head:] }

func (q *fifo[T]) push(v T) {
	if q.head > 64 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *fifo[T]) pop() T {
	var none T
	v := q.items[q.head]
	q.items[q.head] = none
	q.head++
	return v
}
