package soak

// ending is what a stream was found to be at the end, by one read from its first readable record on, all of whose
// records the ledger was told.
type ending struct {
	first, next uint64
	bytes       uint64 // payload of the readable records
	firstBytes  uint64 // of the first of them
}

// close judges the whole ledger: after the last append was answered or given up, and, of a stream that was
// not deleted, after all of it was read. Nil: it was deleted, so that all of it is rightly gone.
func (l *ledger) close(end *ending) (verdicts, tally, []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	switch {
	case end != nil:
		l.tally.Readable = end.next - end.first
		l.tally.Gone += l.judge(end)
	default:
		l.judgeRecords()
		l.tally.Gone += l.tally.Acknowledged
	}
	return l.verdicts, l.tally, l.details
}

// readBefore judges a ledger whose stream is about to be deleted, after all of it was read and while nobody appends to it: else its
// acknowledged records would be gone without having been asked for.
func (l *ledger) readBefore(end *ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.ReadBefore += end.next - end.first
	l.judge(end)
}

// judge judges what was found of a stream, and returns how many of its known records are below its begin. Called with mu held.
func (l *ledger) judge(end *ending) (below uint64) {
	l.judgeRecords()
	l.judgeBegin(end)
	// Every offset in between was read, and compared as it was read; what lies behind the end was not.
	lost := uint64(0)
	for _, r := range l.facts.runs {
		if r.end() > end.next {
			lost += r.end() - max(r.off, end.next)
		}
		if r.off < end.first {
			below += min(r.end(), end.first) - r.off
		}
	}
	if lost > 0 {
		l.verdicts.Lost += lost
		l.note("%d records up to offset %d were acknowledged or read, and it ends at %d", lost, l.facts.end()-1, end.next)
	}
	return below
}

// among counts the records of a run that were refused, or whose outcome is unknown. Called with mu held.
func (l *ledger) among(o outcome, r run) uint64 {
	switch {
	case r.client == roamingClient:
		return l.roamer.overlap(o, r)
	case o == refused:
		return l.refused.overlap(r)
	}
	return l.unknown.overlap(r)
}

// judgeBegin judges the first readable offset: behind every acknowledged trim, and no further than a trim or
// the policy says. Called with mu held.
func (l *ledger) judgeBegin(end *ending) {
	if end.first < l.trimmed {
		l.verdicts.Undead += l.trimmed - end.first
		l.note("it begins at %d, and a trim below %d was acknowledged", end.first, l.trimmed)
	}
	switch {
	case end.first <= l.trimming:
	case l.maxBytes == 0:
		l.verdicts.Lost += end.first - l.trimming
		l.note("it begins at %d, and a trim was asked for below %d at most", end.first, l.trimming)
	case end.bytes < l.maxBytes:
		// The record before the first one has end.bytes behind it: too few to be expired.
		l.verdicts.Lost++
		l.note("it begins at %d with %d bytes from there on: the record before was not to expire below %d", end.first, end.bytes, l.maxBytes)
	}
	if l.maxBytes > 0 && end.next > end.first && end.bytes-end.firstBytes >= l.maxBytes {
		l.verdicts.Undead++
		l.note("offset %d is served with %d bytes behind it, and %d expire it", end.first, end.bytes-end.firstBytes, l.maxBytes)
	}
}

// judgeRecords judges each client's records among themselves. Called with mu held.
func (l *ledger) judgeRecords() {
	l.tally.UnknownThere = 0
	var last, sure run // of this client: what reaches furthest in its records, and of what has to keep the order
	for _, r := range l.facts.byRecord() {
		if last.client != r.client {
			last, sure = run{}, run{}
		}
		if k := min(last.seq+last.n, r.seq+r.n); last.n > 0 && k > r.seq {
			l.verdicts.Duplicated += k - r.seq
			l.note("records %d to %d of client %d are at offsets from %d on, and again from %d on", r.seq, k-1, r.client, last.off+(r.seq-last.seq), r.off)
		}
		if l.among(unknown, r) < r.n { // else it may have come late
			if sure.n > 0 && r.off < sure.off {
				l.verdicts.Reordered += r.n
				l.note("record %d of client %d is at offset %d, behind record %d at offset %d", sure.seq, r.client, sure.off, r.seq, r.off)
			}
			sure = r
		}
		if r.seq+r.n > last.seq+last.n {
			last = r
		}
		if k := l.among(refused, r); k > 0 {
			l.verdicts.Phantom += k
			l.note("%d of the records from %d on of client %d, at offsets from %d on, had been refused", k, r.seq, r.client, r.off)
		}
		l.tally.UnknownThere += l.among(unknown, r)
	}
	l.judgeUnplaced()
}

// judgeUnplaced looks for records that were acknowledged without an offset: they were read, or are below a trim and
// nobody came to read them. Called with mu held.
func (l *ledger) judgeUnplaced() {
	for _, s := range l.unplaced.all {
		seen := uint64(0)
		for _, r := range l.facts.runs {
			if r.client == s.client {
				if lo, hi := max(r.seq, s.first), min(r.seq+r.n, s.end()); lo < hi {
					seen += hi - lo
				}
			}
		}
		if missing := s.n - seen; missing > 0 && l.trimming == 0 && l.maxBytes == 0 && !l.deleting {
			l.verdicts.Lost += missing
			l.note("%d of the %d records from %d on of client %d were acknowledged and are nowhere", missing, s.n, s.first, s.client)
		}
	}
}
