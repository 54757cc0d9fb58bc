package soak

import (
	"cmp"
	"slices"
)

// run says that offsets off, off+1, … of a stream hold records seq, seq+1, … of a client, n of them.
type run struct {
	off, seq, n uint64
	client      uint32
}

func (r run) end() uint64 { return r.off + r.n }

// from is what of the run is at off and behind.
func (r run) from(off uint64) run {
	k := off - r.off
	return run{off: off, seq: r.seq + k, n: r.n - k, client: r.client}
}

// agrees tells whether two runs say the same of the offsets that they share.
func (r run) agrees(o run) bool { return r.client == o.client && r.seq-r.off == o.seq-o.off }

// facts is what is known of a stream's offsets, from acknowledgements and from reads: neither may ever be
// contradicted. Runs are in the order of their offsets, do not overlap, and are joined where one continues the
// other, so that it takes about 32 bytes for each append.
type facts struct{ runs []run }

// add notes a run, and returns how many of its offsets are known to hold other records; of these the first
// statement stays.
func (f *facts) add(r run) (contradicted uint64) {
	var news []run
	for i := f.at(r.off); r.n > 0; i++ {
		if i == len(f.runs) || f.runs[i].off >= r.end() {
			news = append(news, r)
			break
		}
		o := f.runs[i]
		if r.off < o.off {
			news = append(news, run{off: r.off, seq: r.seq, n: o.off - r.off, client: r.client})
			r = r.from(o.off)
		}
		k := min(r.end(), o.end()) - r.off
		if !r.agrees(o) {
			contradicted += k
		}
		r = r.from(r.off + k)
	}
	for _, r := range news {
		f.insert(r)
	}
	return contradicted
}

// at finds the first run that ends behind an offset.
func (f *facts) at(off uint64) int {
	i, _ := slices.BinarySearchFunc(f.runs, off, func(o run, off uint64) int {
		if o.end() <= off {
			return -1
		}
		return 1
	})
	return i
}

// insert puts in a run that overlaps none, and joins it with its neighbours.
func (f *facts) insert(r run) {
	i := f.at(r.off)
	before := i > 0 && f.runs[i-1].end() == r.off && f.runs[i-1].agrees(r)
	after := i < len(f.runs) && r.end() == f.runs[i].off && f.runs[i].agrees(r)
	switch {
	case before && after:
		f.runs[i-1].n += r.n + f.runs[i].n
		f.runs = slices.Delete(f.runs, i, i+1)
	case before:
		f.runs[i-1].n += r.n
	case after:
		f.runs[i].off, f.runs[i].seq, f.runs[i].n = r.off, r.seq, f.runs[i].n+r.n
	default:
		f.runs = slices.Insert(f.runs, i, r)
	}
}

// end is the offset behind the last known one.
func (f *facts) end() uint64 {
	if len(f.runs) == 0 {
		return 0
	}
	return f.runs[len(f.runs)-1].end()
}

// byRecord returns the runs in the order of clients and their records.
func (f *facts) byRecord() []run {
	runs := slices.Clone(f.runs)
	slices.SortFunc(runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(a.client, b.client), cmp.Compare(a.seq, b.seq), cmp.Compare(a.off, b.off))
	})
	return runs
}

// span is records first, first+1, …, n of them, of a client.
type span struct {
	client   uint32
	first, n uint64
}

func (s span) end() uint64 { return s.first + s.n }

// spans are kept in the order in which a client sent them, and joined where one continues the other.
type spans struct{ all []span }

func (s *spans) add(client uint32, first, n uint64) {
	for i := len(s.all) - 1; i >= 0; i-- {
		if s.all[i].client != client {
			continue
		}
		if s.all[i].end() == first {
			s.all[i].n += n
			return
		}
		break
	}
	s.all = append(s.all, span{client, first, n})
}

// overlap counts the records of a run that are among the spans.
func (s *spans) overlap(r run) (n uint64) {
	for _, o := range s.all {
		if o.client == r.client {
			if lo, hi := max(o.first, r.seq), min(o.end(), r.seq+r.n); lo < hi {
				n += hi - lo
			}
		}
	}
	return n
}
